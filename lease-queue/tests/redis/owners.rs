//! What an owner has, to give it up: found as long as it has it, and no longer.

use std::time::{Duration, Instant};

use lease_conformance::servers::redis::RedisServer;
use lease_core::StoreErrorKind;
use lease_queue::redis::RedisQueues;
use lease_queue::{
    Answer, ClaimRequest, Claimed, MAX_BATCH, QueueName, QueueStore, Settle, Settled,
};

use crate::support::{
    PATIENCE, assert_unchanged, base, everything, item, items, name, next, of_key, one, put,
    queues, retry, ttl,
};

/// Whatever is noted of owners, of items and of keys.
fn noted(server: &RedisServer) -> Vec<String> {
    let owners = format!("{}:owners", base("jobs"));
    let all = server.command(&["ZRANGE", &owners, "0", "-1"]).unwrap();
    let all = all.list().unwrap().iter();
    let mut noted: Vec<_> = all.map(|one| one.text().unwrap().to_owned()).collect();
    let keys = everything(server, &format!("{}:o:", base("jobs")));
    noted.extend(keys.into_iter().map(|(name, _)| name));
    noted
}

/// Asks until so many are claimed.
async fn claim(
    store: &RedisQueues,
    queue: &QueueName,
    request: &ClaimRequest,
    count: usize,
) -> Vec<Claimed> {
    let (mut claimed, started) = (Vec::new(), Instant::now());
    while claimed.len() < count {
        match store.claim(queue, request).await.unwrap() {
            Answer::Nothing { .. } => tokio::time::sleep(Duration::from_millis(5)).await,
            answer => claimed.extend(items(answer)),
        }
        assert!(started.elapsed() < PATIENCE);
    }
    claimed
}

#[tokio::test]
async fn whoever_gives_up_what_others_took_over_takes_nothing_from_them() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    put(&store, &queue, &[item("a", None), item("b", Some("g"))]).await;
    let (late, fresh) = (next(2, 50), next(2, 60_000));
    claim(&store, &queue, &late, 2).await;
    let taken = claim(&store, &queue, &fresh, 2).await;
    assert!(
        noted(&server)
            .iter()
            .all(|one| one.starts_with(&fresh.owner.to_string()))
    );
    let before = everything(&server, &base("jobs"));
    store.abandon(&queue, None, late.owner).await.unwrap();
    let tombstone = format!("{}:t:{}", base("jobs"), late.owner);
    let mut after = everything(&server, &base("jobs"));
    after.retain(|(name, _)| *name != tombstone);
    assert_eq!(after, before);
    for one in taken {
        let settled = store.settle(&queue, &[(one.claim, Settle::Complete)]).await;
        assert_eq!(settled[0].clone().unwrap(), Settled::Done);
    }
    assert!(noted(&server).is_empty());
}

#[tokio::test]
async fn nothing_is_noted_of_an_owner_whose_claims_have_ended() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    let bury = Settle::Bury {
        reason: "no".to_owned(),
    };
    for end in [Some(Settle::Complete), Some(retry()), Some(bury), None] {
        let groups = [None, None, Some("g"), Some("h")];
        put(&store, &queue, &groups.map(|group| item("work", group))).await;
        // Some lapse, and are claimed again: by others and by the same.
        let (lapsed, request) = (next(3, 50), next(4, 60_000));
        claim(&store, &queue, &lapsed, 3).await;
        let mut claimed = claim(&store, &queue, &request, 4).await;
        let left = claimed.split_off(2);
        assert_eq!(noted(&server).len(), 4);
        match &end {
            Some(end) => {
                for ends in [claimed, left] {
                    let ends: Vec<_> = ends.into_iter().map(|c| (c.claim, end.clone())).collect();
                    let settled = store.settle(&queue, &ends).await;
                    assert!(
                        settled
                            .iter()
                            .all(|s| *s.as_ref().unwrap() == Settled::Done)
                    );
                }
            }
            None => store.abandon(&queue, None, request.owner).await.unwrap(),
        }
        assert!(noted(&server).is_empty(), "{end:?}: {:?}", noted(&server));
        let depth = store.depth(&queue).await.unwrap();
        assert_eq!(depth.in_flight, 0);
        server.flush_all().unwrap();
    }
}

#[tokio::test]
async fn what_an_owner_claimed_again_after_its_time_is_given_back() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    put(&store, &queue, &[item("a", None), item("b", Some("g"))]).await;
    let first = next(2, 50);
    claim(&store, &queue, &first, 2).await;
    let again = ClaimRequest {
        ttl: ttl(60_000),
        ..first
    };
    claim(&store, &queue, &again, 2).await;
    assert_eq!(store.depth(&queue).await.unwrap().in_flight, 2);
    store.abandon(&queue, None, again.owner).await.unwrap();
    let depth = store.depth(&queue).await.unwrap();
    assert_eq!((depth.ready, depth.in_flight), (2, 0));
}

#[tokio::test]
async fn an_owner_of_items_groups_and_keys_gives_all_of_it_back() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    let groups = [None, Some("g"), None, Some("h")];
    put(&store, &queue, &groups.map(|group| item("work", group))).await;
    let request = next(2, 60_000);
    claim(&store, &queue, &request, 4).await;
    for key in ["a", "b"] {
        let key = ClaimRequest {
            owner: request.owner,
            ..of_key(key, 60_000)
        };
        one(store.claim(&queue, &key).await.unwrap());
    }
    store.abandon(&queue, None, request.owner).await.unwrap();
    assert!(noted(&server).is_empty());
    let all = claim(&store, &queue, &next(4, 60_000), 4).await;
    assert!(all.iter().all(|one| one.attempt == 1));
    for key in ["a", "b"] {
        one(store.claim(&queue, &of_key(key, 60_000)).await.unwrap());
    }
}

#[tokio::test]
async fn an_owner_gives_back_however_much_it_has() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    let request = next(MAX_BATCH, 60_000);
    // More than a script passes to one command.
    let batches = 4_200_usize.div_ceil(MAX_BATCH);
    for _ in 0..batches {
        let all: Vec<_> = (0..MAX_BATCH).map(|_| item("work", None)).collect();
        put(&store, &queue, &all).await;
        claim(&store, &queue, &request, MAX_BATCH).await;
    }
    let all = (batches * MAX_BATCH) as u64;
    assert_eq!(store.depth(&queue).await.unwrap().in_flight, all);
    store.abandon(&queue, None, request.owner).await.unwrap();
    let depth = store.depth(&queue).await.unwrap();
    assert_eq!((depth.ready, depth.in_flight), (all, 0));
    assert!(noted(&server).is_empty());
}

#[tokio::test]
async fn an_order_that_somebody_spoiled_does_not_hide_what_an_owner_has() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    put(&store, &queue, &[item("a", None)]).await;
    let request = next(1, 60_000);
    claim(&store, &queue, &request, 1).await;
    let owners = format!("{}:owners", base("jobs"));
    for (score, foreign) in [("-1", "z"), ("1", "!")] {
        let added = server.command(&["ZADD", &owners, score, foreign]);
        assert_eq!(added.unwrap().integer(), Some(1));
        let before = everything(&server, "");
        // Rather than to say that it was given back.
        let refused = store.abandon(&queue, None, request.owner).await;
        assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Refusing);
        assert_unchanged(&server, "", &before);
        server.command(&["ZREM", &owners, foreign]).unwrap();
    }
    store.abandon(&queue, None, request.owner).await.unwrap();
    assert_eq!(store.depth(&queue).await.unwrap().ready, 1);
}
