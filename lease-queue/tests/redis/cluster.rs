//! Queues in a Redis Cluster: each in one slot.

use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use lease_conformance::servers::redis::cluster::{Failover, RedisCluster};
use lease_core::StoreErrorKind;
use lease_queue::redis::RedisQueues;
use lease_queue::{Answer, QueueStore, Settle, Settled};

use crate::support::{PATIENCE, base, item, name, next, of_key, one, persist, put};

#[tokio::test]
async fn queues_live_in_a_cluster_and_follow_a_failover() {
    let cluster = RedisCluster::builder().start().unwrap();
    let options = RedisQueues::options(&format!("queue+{}", cluster.url())).unwrap();
    let store = RedisQueues::open(options).await.unwrap();
    for queue in ["a", "b", "c", "d"] {
        let queue = name(queue);
        let mut hints = store.watch(&queue, None).await.unwrap();
        put(
            &store,
            &queue,
            &[item("1", Some("g")), item("2", Some("g")), item("3", None)],
        )
        .await;
        let hint = tokio::time::timeout(PATIENCE, hints.next()).await;
        assert_eq!(hint.unwrap(), Some(()));
        let first = one(store.claim(&queue, &next(1, 60_000)).await.unwrap());
        assert_eq!(&first.body[..], b"1");
        one(store.claim(&queue, &of_key("k", 60_000)).await.unwrap());
        let done = store
            .settle(&queue, &[(first.claim, Settle::Complete)])
            .await;
        assert_eq!(done[0].clone().unwrap(), Settled::Done);
    }
    let queue = name("a");
    cluster.failover(&base("a"), Failover::Agreed).unwrap();
    let request = next(2, 60_000);
    let answer = persist(|| store.claim(&queue, &request)).await;
    let Answer::Claimed { items, .. } = answer else {
        panic!("{answer:?}");
    };
    assert!(items.iter().any(|claimed| &claimed.body[..] == b"2"));
    let left: Vec<_> = store.items(&queue, false).try_collect().await.unwrap();
    assert_eq!(left.len(), 2);
    let keys: Vec<_> = store.keys(&queue, "").try_collect().await.unwrap();
    assert_eq!(keys.len(), 1);
    assert!(
        keys[0]
            .holder
            .as_ref()
            .is_some_and(|h| h.remaining > Duration::ZERO)
    );
}

#[tokio::test]
async fn a_slot_on_its_way_to_another_node_tears_no_queue_apart() {
    let cluster = RedisCluster::builder().start().unwrap();
    let options = RedisQueues::options(&format!("queue+{}", cluster.url())).unwrap();
    let store = RedisQueues::open(options).await.unwrap();
    let queue = name("jobs");
    put(
        &store,
        &queue,
        &[item("1", Some("g")), item("2", Some("g"))],
    )
    .await;
    let first = one(store.claim(&queue, &next(1, 60_000)).await.unwrap());
    let slot = cluster.slot_of(&base("jobs")).unwrap();
    let owner = cluster.owner_of_slot(slot).unwrap();
    let to = cluster.primaries().into_iter().find(|node| *node != owner);
    let moving = cluster.begin_move(slot, to.unwrap()).unwrap();
    let complete = [(first.claim, Settle::Complete)];
    let refused = async || {
        let settled = store.settle(&queue, &complete).await.remove(0);
        let put = store.put(&queue, &[item("3", Some("g"))]).await.map(drop);
        let claim = store.claim(&queue, &next(1, 60_000)).await.map(drop);
        for outcome in [settled.map(drop), put, claim] {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        }
    };
    refused().await;
    let keys = moving.keys().unwrap();
    moving.move_these(&keys[..keys.len() / 2]).unwrap();
    refused().await;
    moving.move_keys().unwrap();
    refused().await;
    moving.finish().unwrap();
    let settled = persist(async || store.settle(&queue, &complete).await.remove(0)).await;
    assert_eq!(settled, Settled::Done);
    let second = one(store.claim(&queue, &next(9, 60_000)).await.unwrap());
    assert_eq!(&second.body[..], b"2");
}
