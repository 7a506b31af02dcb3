//! Lists of more than a page, and what is left of what is gone.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::TryStreamExt;
use lease_conformance::servers::redis::RedisServer;
use lease_queue::{ItemId, ItemState, QueueStore, Settle, Settled};

use crate::support::{base, everything, item, items, name, next, of_key, one, put, queues, retry};

#[tokio::test]
async fn every_item_is_listed_once_and_in_order() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    let mut all = Vec::new();
    // All of one batch were put at the same microsecond.
    for size in [256, 256, 1, 255, 7] {
        let batch: Vec<_> = (0..size).map(|_| item("work", None)).collect();
        put(&store, &queue, &batch).await;
        all.extend(batch.iter().map(|item| item.id));
    }
    let ids = |states: Vec<ItemState>| states.iter().map(|s| s.id).collect::<Vec<ItemId>>();
    let listed = store.items(&queue, false).try_collect().await.unwrap();
    assert_eq!(ids(listed), all);

    let mut buried = Vec::new();
    while buried.len() < all.len() {
        let claims = items(store.claim(&queue, &next(200, 60_000)).await.unwrap());
        let bury = |id: ItemId| Settle::Bury {
            reason: id.to_string(),
        };
        let settles = claims
            .into_iter()
            .map(|c| (c.claim.clone(), bury(c.claim.item)));
        let settles: Vec<_> = settles.collect();
        buried.extend(settles.iter().map(|(claim, _)| claim.item));
        let settled = store.settle(&queue, &settles).await;
        assert!(settled.iter().all(|s| matches!(s, Ok(Settled::Done))));
    }
    // Claimed in the order of their puts, of one batch too.
    assert_eq!(buried, all);
    let listed = store.items(&queue, true).try_collect().await.unwrap();
    assert_eq!(ids(listed), all);
    let none: Vec<_> = store.items(&queue, false).try_collect().await.unwrap();
    assert!(none.is_empty());
}

#[tokio::test]
async fn keys_are_listed_by_their_prefix_and_forgotten_with_their_records() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("locks");
    let names: HashSet<_> = (0..600).map(|n| format!("a*/{n}")).collect();
    for key in names
        .iter()
        .map(String::as_str)
        .chain(["a", "b", "a*", "\u{7f5}é", "😀"])
    {
        one(store.claim(&queue, &of_key(key, 60_000)).await.unwrap());
    }
    let list = async |prefix: &str| {
        let states: Vec<_> = store.keys(&queue, prefix).try_collect().await.unwrap();
        let names = states.iter().map(|state| state.key.to_string());
        let (count, names) = (states.len(), names.collect::<HashSet<_>>());
        assert_eq!(count, names.len());
        names
    };
    assert_eq!(list("a*/").await, names);
    assert_eq!(list("").await.len(), 605);
    assert_eq!(list("😀").await.len(), 1);
    // As Redis drops what has been idle for long.
    for name in &names {
        let record = format!("{}:k:{name}", base("locks"));
        server.command(&["DEL", &record]).unwrap();
    }
    assert!(list("a*/").await.is_empty());
    for number in 0..800 {
        let key = format!("new {number}");
        one(store.claim(&queue, &of_key(&key, 60_000)).await.unwrap());
    }
    let known = server.command(&["ZCARD", &format!("{}:keys", base("locks"))]);
    assert_eq!(known.unwrap().integer(), Some(805));
}

#[tokio::test]
async fn what_is_done_leaves_nothing_that_lasts() {
    let server = RedisServer::builder().start().unwrap();
    let options = lease_queue::redis::RedisQueues::options(&server.url().to_string()).unwrap();
    let options = options.tombstone_retention(Duration::from_secs(6));
    let store = lease_queue::redis::RedisQueues::open(options)
        .await
        .unwrap();
    let queue = name("jobs");
    let mut some: Vec<_> = (0..20).map(|_| item("work", None)).collect();
    some.extend((0..20).map(|n| item("work", Some(&format!("g{}", n % 3)))));
    some[0].dedup = Some(lease_core::Key::new("once").unwrap());
    some[1].delay = Duration::from_millis(50);
    put(&store, &queue, &some).await;
    let mut left = some.len();
    while left > 0 {
        let Ok(lease_queue::Answer::Claimed { items, .. }) =
            store.claim(&queue, &next(3, 60_000)).await
        else {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        for claimed in items {
            let settle = match claimed.attempt {
                1 => retry(),
                _ => Settle::Complete,
            };
            left -= usize::from(settle == Settle::Complete);
            let settled = store.settle(&queue, &[(claimed.claim, settle)]).await;
            assert_eq!(settled[0].clone().unwrap(), Settled::Done);
        }
    }
    let last = store.claim(&queue, &next(1, 60_000)).await.unwrap();
    assert_eq!(last, lease_queue::Answer::Nothing { next: None });
    let names = everything(&server, &base("jobs")).into_iter();
    let lasts = |name: &String| server.command(&["TTL", name]).unwrap().integer() == Some(-1);
    let lasting: Vec<_> = names.map(|(name, _)| name).filter(lasts).collect();
    // The birth marker, and the counter of places.
    assert_eq!(lasting, [base("jobs"), format!("{}:n", base("jobs"))]);
}
