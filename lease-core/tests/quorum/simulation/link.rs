//! One client's way to one node: requests and replies are delayed and lost, and
//! a request that was sent goes on when its caller has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use lease_core::{
    AcquireOutcome, AcquireRequest, Diagnosis, FenceWhen, Guarantees, Key, KeyState, LeaseBackend,
    MemoryStore, Owner, RefusedReason, ReleaseOutcome, RenewOutcome, RenewRequest, Session,
    StoreError, Token, Ttl,
};
use tokio::sync::oneshot;

use super::server::{Dice, Server};

#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) server: Arc<Server>,
    pub(super) dice: Dice,
    /// In how many of a hundred calls something goes wrong.
    pub(super) trouble: u64,
    pub(super) healed: Arc<AtomicBool>,
}

impl Link {
    async fn call<T: Send + 'static>(
        &self,
        apply: impl FnOnce(Arc<Server>, MemoryStore) -> BoxFuture<'static, T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (dice, server) = (&self.dice, Arc::clone(&self.server));
        let healed = self.healed.load(Ordering::Relaxed);
        let trouble = !healed && dice.below(100) < self.trouble;
        let kind = if trouble { 1 + dice.below(4) } else { 0 };
        let delay = || {
            let slow = server.is_slow() && !healed;
            let usual = Duration::from_micros(100 + dice.below(2_000)) * server.slower();
            if slow { dice.ms(50, 900) } else { usual }
        };
        let (there, mut back) = (delay(), delay());
        if kind == 1 {
            back += dice.ms(10, 2_500);
        }
        if server.is_down() && !healed && dice.below(2) == 0 {
            tokio::time::sleep(there).await;
            return Err(StoreError::unavailable("refused by the simulation"));
        }
        let late = if kind == 2 {
            dice.ms(10, 8_000)
        } else {
            Duration::ZERO
        };
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            tokio::time::sleep(there + late).await;
            if kind == 3 || server.is_down() && !healed {
                return;
            }
            let store = server.store();
            let outcome = apply(Arc::clone(&server), store).await;
            tokio::time::sleep(back).await;
            if kind != 4 {
                let _ = reply.send(outcome);
            }
        });
        match answer.await {
            Ok(outcome) => Ok(outcome),
            Err(_) if self.dice.below(2) == 0 => std::future::pending().await,
            Err(_) => Err(StoreError::unknown_outcome("cut by the simulation")),
        }
    }
}

#[async_trait]
impl LeaseBackend for Link {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        let request = request.clone();
        self.call(|server, store| {
            Box::pin(async move {
                if let Some(remaining) = server.quarantine() {
                    let reason = RefusedReason::Quarantine { remaining };
                    return Ok(AcquireOutcome::Refused(reason));
                }
                store.acquire(&request).await
            })
        })
        .await?
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        let key = key.clone();
        self.call(move |_, store| Box::pin(async move { store.abandon(&key, owner).await }))
            .await?
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        let request = request.clone();
        self.call(|_, store| Box::pin(async move { store.renew(&request).await }))
            .await?
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let sent = requests.to_vec();
        let answer = self
            .call(|_, store| Box::pin(async move { store.renew_many(&sent).await }))
            .await;
        answer.unwrap_or_else(|error| requests.iter().map(|_| Err(error.clone())).collect())
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        let key = key.clone();
        self.call(move |_, store| Box::pin(async move { store.release(&key, owner, token).await }))
            .await?
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        let key = key.clone();
        self.call(move |_, store| Box::pin(async move { store.fence(&key, at_least, when).await }))
            .await?
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        let key = key.clone();
        self.call(|_, store| Box::pin(async move { store.inspect(&key).await }))
            .await?
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.server.store().list(prefix)
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        self.server.store().watch(key).await
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        self.server.store().ping().await
    }

    fn guarantees(&self) -> Guarantees {
        self.server.store().guarantees()
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.server.store().diagnose(ttl).await
    }
}
