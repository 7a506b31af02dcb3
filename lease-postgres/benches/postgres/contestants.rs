//! Ours: the backend, and the whole handle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use lease_conformance::bench::{Contestant, Laps, Runner, laps};
use lease_core::{
    AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Leases, Owner, RenewOutcome,
    RenewRequest, Token, TokenRule, Ttl,
};
use lease_postgres::{PostgresOptions, PostgresStore};

pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) async fn store(url: &str, asynchronous: bool) -> PostgresStore {
    let options = PostgresOptions::from_url(url).unwrap();
    options
        .asynchronous_commit(asynchronous)
        .open()
        .await
        .unwrap()
}

/// The backend.
pub(crate) struct Ours {
    store: PostgresStore,
    asynchronous: bool,
}

impl Ours {
    pub(crate) async fn new(url: &str, asynchronous: bool) -> Self {
        Self {
            store: store(url, asynchronous).await,
            asynchronous,
        }
    }

    async fn acquire(&self, key: &str) -> (AcquireRequest, Token) {
        let request = AcquireRequest {
            key: Key::new(key).unwrap(),
            owner: Owner::random().unwrap(),
            ttl: Ttl::new(TTL).unwrap(),
            label: Label::EMPTY,
            rule: TokenRule::NEXT,
            waits: None,
        };
        match self.store.acquire(&request).await.unwrap() {
            AcquireOutcome::Granted(granted) => (request, granted.token),
            other => panic!("{other:?}"),
        }
    }

    async fn renew(&self, request: &AcquireRequest, token: Token) {
        let renewal = RenewRequest {
            key: request.key.clone(),
            owner: request.owner,
            token,
            ttl: request.ttl,
        };
        let renewed = self.store.renew(&renewal).await.unwrap();
        assert_eq!(renewed, RenewOutcome::Renewed);
    }

    async fn release(&self, request: &AcquireRequest, token: Token) {
        let release = self.store.release(&request.key, request.owner, token);
        release.await.unwrap();
    }
}

#[async_trait]
impl Contestant for Ours {
    fn name(&self) -> String {
        let commit = if self.asynchronous {
            ", asynchronous commit"
        } else {
            ""
        };
        format!("lease-postgres, the backend{commit}")
    }

    async fn pair(&self, key: &str, renew: bool) {
        let (request, token) = self.acquire(key).await;
        if renew {
            self.renew(&request, token).await;
        }
        self.release(&request, token).await;
    }
}

#[async_trait]
impl Runner for Ours {
    fn name(&self) -> String {
        "lease-postgres, the backend".to_owned()
    }

    async fn life(&self, key: &str) -> Laps {
        let start = Instant::now();
        let (request, token) = self.acquire(key).await;
        let acquired = Instant::now();
        self.renew(&request, token).await;
        let renewed = Instant::now();
        self.release(&request, token).await;
        laps([start, acquired, renewed, Instant::now()])
    }
}

/// The whole handle, as an application uses it.
pub(crate) struct Handle(pub(crate) Leases);

impl Handle {
    pub(crate) async fn new(url: &str) -> Self {
        Self(Leases::new(Arc::new(store(url, false).await)))
    }
}

#[async_trait]
impl Contestant for Handle {
    fn name(&self) -> String {
        "lease-postgres, through Leases".to_owned()
    }

    async fn pair(&self, key: &str, renew: bool) {
        assert!(!renew, "it renews when it is due");
        let lease = self.0.lease(Key::new(key).unwrap()).ttl(TTL);
        lease.acquire().await.unwrap().release().await.unwrap();
    }
}
