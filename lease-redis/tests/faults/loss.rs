//! What a loss of grants looks like from both sides, one step after the other.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::servers::redis::{Persistence, RedisServer};
use lease_core::{Clock, Gate, Leases, LocalGate, LostReason, SystemClock};

use crate::support::{PATIENCE, key, plain, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quarantine_two_may_believe_and_the_gate_refuses_the_stale_one() {
    let server = plain();
    let clock = SystemClock::new();
    let client = |store| {
        Leases::builder(Arc::new(store))
            .clock(Arc::new(clock))
            .build()
    };
    let (first, second) = (client(store(&server).await), client(store(&server).await));
    assert!(!first.guarantees().exclusion_survives.restart);
    let gate = LocalGate::new();
    let ledger = key("ledger");

    let old = first.lease("a").ttl(Duration::from_secs(20));
    let old = old.acquire().await.unwrap();
    gate.admit(&ledger, old.token()).await.unwrap();
    server.restart_empty().unwrap();
    let new = second.lease("a").wait(PATIENCE).acquire().await.unwrap();

    // The store forgot, and claims nothing else. Tokens rise all the same.
    old.check().unwrap();
    assert!(new.token() > old.token());
    gate.admit(&ledger, new.token()).await.unwrap();
    let stale = gate.admit(&ledger, old.token()).await.unwrap_err();
    assert!(stale.to_string().contains("stale"), "{stale}");

    // The old one learns of it by its next renewal, long before its deadline.
    let lost = tokio::time::timeout(PATIENCE, old.lost()).await.unwrap();
    assert!(matches!(lost.reason, LostReason::Store(_)), "{lost}");
    assert!(clock.now() < old.deadline());
    new.check().unwrap();
    new.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_over_a_restart_from_an_older_backup() {
    let server = RedisServer::builder().persistence(Persistence::AofAlways);
    let server = server.start().unwrap();
    let leases = Leases::new(Arc::new(store(&server).await));
    let mut last = None;
    let mut backup = server.backup().unwrap();
    for round in 0..6 {
        for _ in 0..5 {
            let lease = leases.lease("a").wait(PATIENCE).ttl(Duration::from_secs(1));
            let lease = lease.acquire().await.unwrap();
            assert!(Some(lease.token()) > last, "round {round}");
            last = Some(lease.token());
            let _ = lease.release().await;
        }
        if round % 2 == 0 {
            server.restart_from(&backup).unwrap();
        } else {
            backup = server.backup().unwrap();
        }
    }
}
