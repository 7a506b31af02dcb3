//! The classic: two are granted one key, since the replica that took over had
//! not heard of the first.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::servers::redis::cluster::{Failover, RedisCluster};
use lease_core::{Clock, Gate, Leases, LocalGate, LostReason, SystemClock};

use crate::support::{PATIENCE, key};
use crate::{harm, record, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_takeover_without_the_last_grants_makes_two_holders_and_a_gate_refuses_the_first() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let clock = SystemClock::new();
    let client = |store| {
        Leases::builder(Arc::new(store))
            .clock(Arc::new(clock))
            .build()
    };
    let (first, second) = (client(store(&cluster).await), client(store(&cluster).await));
    // It had said so.
    let claimed = first.guarantees();
    assert_eq!(claimed.store, "redis-cluster");
    assert!(!claimed.exclusion_survives.failover);
    let gate = LocalGate::new();
    let ledger = key("ledger");

    let replica = harm(&cluster, |cluster| {
        let replica = cluster.replica_of(cluster.owner_of(&record("a"))?)?;
        cluster.hold_replication(replica)?;
        Ok(replica)
    })
    .await;
    let old = first.lease("a").ttl(Duration::from_secs(20));
    let old = old.acquire().await.unwrap();
    gate.admit(&ledger, old.token()).await.unwrap();
    harm(&cluster, move |cluster| {
        cluster.promote(replica, Failover::Takeover)
    })
    .await;

    let new = second.lease("a").wait(PATIENCE).acquire().await.unwrap();
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
