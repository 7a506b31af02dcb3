//! Grants that wait for replicas.

use std::time::{Duration, Instant};

use lease_conformance::servers::redis::RedisServer;
use lease_core::{LeaseBackend, ReleaseOutcome, RenewOutcome, StoreErrorKind};
use lease_redis::RedisStore;

use crate::support::*;

const WITHIN: Duration = Duration::from_millis(500);

struct Pair {
    primary: RedisServer,
    replica: RedisServer,
    waiting: RedisStore,
    other: RedisStore,
}

async fn pair() -> Pair {
    let primary = plain();
    let replica = RedisServer::builder().replica_of(&primary).start().unwrap();
    replica.wait_until_linked().unwrap();
    let waiting = options(&primary.url()).wait_for_replicas(1, WITHIN);
    Pair {
        waiting: waiting.open().await.unwrap(),
        other: store(&primary).await,
        primary,
        replica,
    }
}

impl Pair {
    async fn one_life(&self, name: &str) {
        // Until the replica is back in touch. An owner whose grant fell short is
        // given up and never used again.
        let started = Instant::now();
        let (request, token) = loop {
            let request = request(name, 60_000);
            match self.waiting.acquire(&request).await {
                Ok(outcome) => break (request, granted(outcome).token),
                Err(e) => assert!(e.is_transient() && started.elapsed() < PATIENCE, "{e}"),
            }
        };
        let renewed = self.waiting.renew(&renewal(&request, token)).await;
        assert_eq!(renewed.unwrap(), RenewOutcome::Renewed);
        let release = self.waiting.release(&request.key, request.owner, token);
        assert_eq!(release.await.unwrap(), ReleaseOutcome::Released);
    }

    /// With a replica that confirms nothing.
    async fn falls_short(&self) {
        let held = request("held", 60_000);
        let token = granted(self.other.acquire(&held).await.unwrap()).token;

        let request = request("new", 60_000);
        let asked = Instant::now();
        let error = self.waiting.acquire(&request).await.unwrap_err();
        let took = asked.elapsed();
        assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        assert!(error.message().contains("0 of 1 replicas"), "{error}");
        assert!(took >= WITHIN, "{took:?}");
        assert!(took < WITHIN + Duration::from_secs(3), "{took:?}");
        // It is free for others at once.
        let theirs = self::request("new", 60_000);
        let next = granted(self.other.acquire(&theirs).await.unwrap()).token;
        let release = self.other.release(&theirs.key, theirs.owner, next);
        assert_eq!(release.await.unwrap(), ReleaseOutcome::Released);

        // What is there already stays: whether it lasts is not known.
        let renew = renewal(&held, token);
        let error = self.waiting.renew(&renew).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome, "{error}");
        for error in self.waiting.renew_many(&[renew.clone(), renew]).await {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome, "{error}");
        }
        assert!(
            self.other
                .inspect(&held.key)
                .await
                .unwrap()
                .holder
                .is_some()
        );
        // Nothing was changed, so nothing can be lost.
        let held_by = self.waiting.acquire(&self::request("held", 60_000)).await;
        assert!(matches!(
            held_by.unwrap(),
            lease_core::AcquireOutcome::Held(_)
        ));
        let release = self.waiting.release(&held.key, held.owner, token);
        assert_eq!(release.await.unwrap(), ReleaseOutcome::Released);
    }
}

#[tokio::test]
async fn a_replica_that_confirms_is_waited_for() {
    let pair = pair().await;
    for round in 0..10 {
        pair.one_life(&format!("{round}")).await;
    }
    // What was answered is there.
    let request = request("there", 60_000);
    granted(pair.waiting.acquire(&request).await.unwrap());
    let there = pair.replica.command(&["EXISTS", "leases:{there}"]);
    assert_eq!(there.unwrap().integer(), Some(1));
}

#[tokio::test]
async fn a_paused_replica_makes_grants_fall_short_and_leaves_keys_free() {
    let pair = pair().await;
    pair.one_life("a").await;
    pair.replica.pause().unwrap();
    pair.falls_short().await;
    pair.replica.resume().unwrap();
    pair.one_life("a").await;
}

#[tokio::test]
async fn a_replica_that_is_gone_makes_grants_fall_short_and_leaves_keys_free() {
    let pair = pair().await;
    pair.replica.kill().unwrap();
    pair.falls_short().await;
    pair.replica.start().unwrap();
    pair.replica.wait_until_linked().unwrap();
    pair.one_life("a").await;
    assert_eq!(
        pair.primary.info("role").unwrap().as_deref(),
        Some("master")
    );
}
