//! The quarantine: each slot has its own.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::servers::redis::cluster::{Failover, RedisCluster};
use lease_core::{AcquireOutcome, LeaseBackend, RefusedReason, RenewOutcome, Ttl};
use lease_redis::RedisStore;

use crate::support::{granted, persist, renewal, request};
use crate::{harm, options, record};

const MOST: Duration = Duration::from_millis(1500);

async fn left(store: &RedisStore, name: &str) -> Option<Duration> {
    let asked = request(name, 1000);
    match persist(|| store.acquire(&asked)).await {
        AcquireOutcome::Refused(RefusedReason::Quarantine { remaining }) => Some(remaining),
        AcquireOutcome::Granted(granted) => {
            store
                .release(&asked.key, asked.owner, granted.token)
                .await
                .unwrap();
            None
        }
        other => panic!("{other:?}"),
    }
}

/// The birth marker of the slot, where the page on clusters says it is.
fn marker(keys: &[String]) -> &str {
    let mut found = keys.iter().filter(|key| key.starts_with("leases:birth:"));
    found.next().unwrap()
}

async fn wait_out(store: &RedisStore, name: &str) {
    while let Some(left) = left(store, name).await {
        assert!(left <= MOST);
        tokio::time::sleep(left).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_slot_waits_once_at_first_and_once_after_it_got_another_primary() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let store = options(&cluster.url()).quarantine(Ttl::new(MOST).unwrap());
    let store = store.open().await.unwrap();
    assert!(left(&store, "a").await.is_some());
    wait_out(&store, "a").await;
    assert_eq!(left(&store, "a").await, None);
    // Another slot has not begun, and another key of the same one need not.
    assert!(left(&store, "b").await.is_some());

    // Renewals go on in it.
    let held = request("a", 1400);
    let grant = granted(store.acquire(&held).await.unwrap());
    harm(&cluster, |cluster| {
        cluster.failover(&record("a"), Failover::Agreed)?;
        cluster.until_settled()
    })
    .await;
    let renew = renewal(&held, grant.token);
    assert_eq!(persist(|| store.renew(&renew)).await, RenewOutcome::Renewed);
    let released = store.release(&held.key, held.owner, grant.token);
    released.await.unwrap();
    assert!(left(&store, "a").await.is_some());
    wait_out(&store, "a").await;

    // So it is when the slot moves.
    harm(&cluster, |cluster| {
        let slot = cluster.slot_of(&record("a"))?;
        let from = cluster.owner_of_slot(slot)?;
        let to = cluster.primaries().into_iter().find(|to| *to != from);
        cluster.move_slot(slot, to.unwrap())
    })
    .await;
    assert!(left(&store, "a").await.is_some());
}

/// What the page on clusters says of it, and what it says to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_that_is_given_up_after_a_loss_waits_once_the_marker_is_deleted() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let store = options(&cluster.url()).quarantine(Ttl::new(MOST).unwrap());
    let store = store.open().await.unwrap();
    for deleted in [false, true] {
        wait_out(&store, "a").await;
        let held = request("a", 1400);
        granted(persist(|| store.acquire(&held)).await);
        harm(&cluster, move |cluster| {
            let slot = cluster.slot_of(&record("a"))?;
            let from = cluster.owner_of_slot(slot)?;
            let to = cluster.primaries().into_iter().find(|to| *to != from);
            let moving = cluster.begin_move(slot, to.unwrap())?;
            moving.move_these(&[record("a")])?;
            cluster.node(to.unwrap()).flush_all()?;
            if deleted {
                let old = cluster.node(from);
                old.command(&["DEL", marker(&moving.keys()?)])?;
            }
            moving.give_up()
        })
        .await;
        // The grant is gone, and the marker vouches for what nobody knows.
        assert_eq!(left(&store, "a").await.is_some(), deleted);
    }
}
