//! The classic double grant, and what the guarantees and the fence make of it.

use std::time::Duration;

use lease_conformance::servers::redis::sentinel::SentinelTrio;
use lease_core::{AdmitError, Clock, LostReason, SystemClock, Ttl};
use lease_redis::RedisGate;

use crate::support::{PATIENCE, key, plain};
use crate::trio::{act, client, failover, options, pair, start, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_replication_paused_two_believe_and_the_old_ones_write_is_refused() {
    let trio = pair().await;
    let clock = SystemClock::new();
    let (first, second) = (client(store(&trio).await), client(store(&trio).await));
    // It had been said.
    let guarantees = first.guarantees();
    assert!(!guarantees.exclusion_survives.failover);
    assert!(!guarantees.exclusion_survives.restart);
    // What both write to is elsewhere.
    let ledger = plain();
    let resource = redis::Client::open(ledger.url().to_string()).unwrap();
    let resource = resource.get_multiplexed_async_connection().await.unwrap();
    let gate = RedisGate::new(resource);
    let (name, total) = (key("ledger"), "total");

    act(&trio, SentinelTrio::pause_replication).await;
    let old = first.lease("a").ttl(Duration::from_secs(20));
    let old = old.acquire().await.unwrap();
    gate.set(&name, old.token(), total, "old").await.unwrap();
    failover(&trio).await;
    let new = second.lease("a").wait(PATIENCE).acquire().await.unwrap();

    // Both believe.
    old.check().unwrap();
    new.check().unwrap();
    assert!(new.token() > old.token());
    // Who comes second shuts the first one out.
    gate.set(&name, new.token(), total, "new").await.unwrap();
    let stale = gate.set(&name, old.token(), total, "old again").await;
    assert!(matches!(stale, Err(AdmitError::Stale(_))), "{stale:?}");
    let written = ledger.command(&["GET", total]).unwrap();
    assert_eq!(written.text(), Some("new"));

    // The old one learns of it by its next renewal, before its deadline.
    let lost = tokio::time::timeout(PATIENCE, old.lost()).await.unwrap();
    assert!(matches!(lost.reason, LostReason::Store(_)), "{lost}");
    assert!(clock.now() < old.deadline());
    new.check().unwrap();
    new.release().await.unwrap();
}

/// The same with a quarantine: nobody gets the key before the old one knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_quarantine_the_second_waits_until_the_first_has_lost() {
    let most = Ttl::new(Duration::from_secs(3)).unwrap();
    let trio = start(SentinelTrio::builder().replicas(1)).await;
    let open = || options(&trio).quarantine(most).open();
    let (first, second) = (client(open().await.unwrap()), client(open().await.unwrap()));
    let old = first.lease("a").ttl(most.get()).wait(PATIENCE);
    let old = old.acquire().await.unwrap();
    act(&trio, SentinelTrio::pause_replication).await;
    let mine = first.lease("b").ttl(most.get()).wait(PATIENCE);
    let mine = mine.acquire().await.unwrap();
    failover(&trio).await;
    let lost = mine.lost();
    let next = second.lease("b").ttl(most.get()).wait(PATIENCE);
    let next = next.acquire().await.unwrap();
    // Whatever it was told, it did not believe for longer.
    assert!(mine.check().is_err());
    lost.await;
    assert!(next.token() > mine.token());
    // What had reached the replica lives on.
    old.check().unwrap();
}
