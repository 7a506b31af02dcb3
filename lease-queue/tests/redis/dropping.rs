//! Calls that are dropped half way.

use std::time::Duration;

use lease_conformance::servers::redis::RedisServer;
use lease_queue::{Answer, Depth, QueueStore, Settle};

use crate::support::{item, name, next, of_key, one, put, queues};

/// Long enough for some requests to be answered, and too short for others.
fn moments() -> impl Iterator<Item = Duration> {
    (0..60).map(|n| Duration::from_micros(n * 20))
}

#[tokio::test]
async fn a_dropped_claim_harms_nobody_once_it_is_abandoned() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    put(&store, &queue, &[item("work", None)]).await;
    for moment in moments() {
        let (any, key) = (next(1, 600_000), of_key("k", 600_000));
        let _ = tokio::time::timeout(moment, store.claim(&queue, &any)).await;
        let _ = tokio::time::timeout(moment, store.claim(&queue, &key)).await;
        store.abandon(&queue, None, any.owner).await.unwrap();
        store.abandon(&queue, None, key.owner).await.unwrap();
        // One that was not sent before may not come later.
        let late = store.claim(&queue, &any).await.unwrap();
        assert!(matches!(late, Answer::Refused(_)), "{late:?}");
        let depth = store.depth(&queue).await.unwrap();
        assert_eq!((depth.ready, depth.in_flight), (1, 0));
    }
    let claimed = one(store.claim(&queue, &next(1, 600_000)).await.unwrap());
    assert_eq!(claimed.attempt, 1);
    one(store.claim(&queue, &of_key("k", 600_000)).await.unwrap());
}

#[tokio::test]
async fn dropped_puts_and_settles_are_whole_or_not_there() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    for moment in moments() {
        let pair = [item("a", Some("g")), item("b", Some("g"))];
        let _ = tokio::time::timeout(moment, store.put(&queue, &pair)).await;
        put(&store, &queue, &pair).await;
        for id in pair.iter().map(|item| item.id) {
            let claimed = one(store.claim(&queue, &next(1, 600_000)).await.unwrap());
            assert_eq!(claimed.claim.item, id);
            let settle = [(claimed.claim, Settle::Complete)];
            let _ = tokio::time::timeout(moment, store.settle(&queue, &settle)).await;
            store.settle(&queue, &settle).await.remove(0).unwrap();
        }
        assert_eq!(store.depth(&queue).await.unwrap(), Depth::default());
    }
}
