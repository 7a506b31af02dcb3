//! Batches of which one is not like the others.

use lease_conformance::servers::redis::RedisServer;
use lease_queue::{Answer, ClaimRequest, QueueStore};

use crate::support::{base, item, items, name, next, of_key, one, persist, put, queues};

#[tokio::test]
async fn what_is_claimed_beside_a_spoiled_record_is_found_by_an_abandon() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    let all = [item("first", None), item("second", None)];
    put(&store, &queue, &all).await;
    let crashed = next(1, 50);
    let first = one(store.claim(&queue, &crashed).await.unwrap());
    // What its owner has, whose time is over, of keys; and of items somebody's own.
    let set = format!("{}:o:{}", base("jobs"), crashed.owner);
    server.command(&["SET", &set, "somebody else's"]).unwrap();
    let owners = format!("{}:owners", base("jobs"));
    for foreign in [crashed.owner.to_string().as_str(), "somebody else's"] {
        server.command(&["ZADD", &owners, "0", foreign]).unwrap();
    }
    let request = next(2, 60_000);
    let mut claimed = Vec::new();
    while claimed.len() < 2 {
        let answer = persist(|| store.claim(&queue, &request)).await;
        match answer {
            Answer::Nothing { .. } => {}
            answer => claimed.extend(items(answer)),
        }
    }
    assert!(claimed.iter().any(|c| c.claim.item == first.claim.item));
    store.abandon(&queue, None, request.owner).await.unwrap();
    let depth = store.depth(&queue).await.unwrap();
    assert_eq!((depth.ready, depth.in_flight), (2, 0));
    let held = server.command(&["GET", &set]).unwrap();
    assert_eq!(held.text(), Some("somebody else's"));
    assert_eq!(
        server.command(&["ZCARD", &owners]).unwrap().integer(),
        Some(2)
    );
}

#[tokio::test]
async fn nothing_is_claimed_for_an_owner_whose_claims_cannot_be_noted() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    put(&store, &queue, &[item("a", None), item("b", None)]).await;
    let request = next(2, 60_000);
    for part in ["owners".to_owned(), format!("o:{}", request.owner)] {
        let set = format!("{}:{part}", base("jobs"));
        server.command(&["SET", &set, "somebody else's"]).unwrap();
        if part == "owners" {
            store.claim(&queue, &request).await.unwrap_err();
        }
        let key = of_key("k", 60_000);
        let key = ClaimRequest {
            owner: request.owner,
            ..key
        };
        if part != "owners" {
            store.claim(&queue, &key).await.unwrap_err();
        }
        let depth = store.depth(&queue).await.unwrap();
        assert_eq!((depth.ready, depth.in_flight), (2, 0));
        // Nor is it said that all of it was given back.
        let abandoned = store.abandon(&queue, None, request.owner).await;
        abandoned.unwrap_err();
        let held = server.command(&["GET", &set]).unwrap();
        assert_eq!(held.text(), Some("somebody else's"));
        server.command(&["DEL", &set]).unwrap();
    }
}

#[tokio::test]
async fn lanes_whose_tokens_are_used_up_are_in_nobodys_way() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    // More than one claim looks at.
    let stuck: Vec<_> = (0..100).map(|n| item(&n.to_string(), None)).collect();
    put(&store, &queue, &stuck).await;
    let fine = item("fine", None);
    put(&store, &queue, std::slice::from_ref(&fine)).await;
    for one in &stuck {
        let hash = format!("{}:m:{}", base("jobs"), one.id);
        let used_up = "redis.call('HSET', KEYS[1], 'h', redis.call('HGET', KEYS[1], 'h') .. \
                       struct.pack('<c1ddddc32', 's', 9007199254740991, 1, 0, 0, \
                       string.rep('0', 32)))";
        server.command(&["EVAL", used_up, "1", &hash]).unwrap();
    }
    let mut refusals = 0;
    let claimed = loop {
        match store.claim(&queue, &next(1, 60_000)).await.unwrap() {
            Answer::Refused(_) => refusals += 1,
            answer => break one(answer),
        }
        assert!(refusals < 4, "each claim sets some aside");
    };
    assert_eq!(claimed.claim.item, fine.id);
}
