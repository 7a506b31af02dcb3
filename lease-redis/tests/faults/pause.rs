//! A server that stands still.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::servers::redis::RedisServer;
use lease_core::{Clock, Leases, LostReason, SystemClock};
use rand::RngExt;

use crate::harm::harm;
use crate::load::Load;
use crate::support::{PATIENCE, options, plain, store};

/// A run with pauses of some of these milliseconds.
async fn with_pauses(ttls_ms: std::ops::RangeInclusive<u64>, ms: std::ops::Range<u64>) {
    let server = Arc::new(plain());
    let all = (0..4).map(|_| options(&server.url())).collect();
    let load = Load::start(ttls_ms, all).await;
    let mut random = load.random();
    while load.goes_on() {
        harm(&server, RedisServer::pause).await;
        tokio::time::sleep(Duration::from_millis(random.random_range(ms.clone()))).await;
        harm(&server, RedisServer::resume).await;
        tokio::time::sleep(Duration::from_millis(random.random_range(100..600))).await;
    }
    load.end(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_shorter_than_the_ttl_make_no_two_holders() {
    with_pauses(1000..=2000, 50..300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_longer_than_the_ttl_make_no_two_holders() {
    with_pauses(300..=600, 700..1200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_outlive_a_pause_that_is_shorter_than_they_are() {
    let ttl = Duration::from_secs(3);
    let server = Arc::new(plain());
    let leases = Leases::new(Arc::new(store(&server).await));
    let mut all = Vec::new();
    for number in 0..20 {
        let lease = leases.lease(format!("a/{number}")).ttl(ttl);
        all.push(lease.acquire().await.unwrap());
    }
    // From within the first third to the second: over a renewal.
    for _ in 0..2 {
        harm(&server, RedisServer::pause).await;
        tokio::time::sleep(ttl / 3).await;
        harm(&server, RedisServer::resume).await;
        tokio::time::sleep(ttl).await;
    }
    for lease in all {
        lease.check().unwrap();
        lease.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_learn_of_a_long_pause_by_their_deadline_without_any_reply() {
    let clock = SystemClock::new();
    let server = Arc::new(plain());
    let leases = Leases::builder(Arc::new(store(&server).await))
        .clock(Arc::new(clock))
        .build();
    let mut all = Vec::new();
    for (number, ttl_ms) in [300_u64, 500, 900, 1500].into_iter().enumerate() {
        let lease = leases.lease(format!("a/{number}"));
        let lease = lease.ttl(Duration::from_millis(ttl_ms)).acquire();
        all.push(lease.await.unwrap());
    }
    harm(&server, RedisServer::pause).await;
    let lost = all.iter().map(|lease| async move {
        let lost = tokio::time::timeout(PATIENCE, lease.lost()).await.unwrap();
        (lost, clock.now(), lease)
    });
    for (lost, at, lease) in futures_util::future::join_all(lost).await {
        assert!(
            matches!(lost.reason, LostReason::Unconfirmed { .. }),
            "{lost}"
        );
        assert!(at >= lease.deadline());
        let late = at.since(lease.deadline());
        assert!(late < Duration::from_secs(1), "{late:?}");
    }
    harm(&server, RedisServer::resume).await;
    // Their requests arrive now, and change nothing for who comes after.
    let other = Leases::new(Arc::new(store(&server).await));
    for old in all {
        let new = other.lease(old.key().clone()).wait(PATIENCE).acquire();
        let new = new.await.unwrap();
        assert!(new.token() > old.token());
        old.check().unwrap_err();
        drop(old);
        new.check().unwrap();
        new.release().await.unwrap();
    }
}
