//! Somebody else's values at the names of a queue.

use lease_conformance::servers::redis::RedisServer;
use lease_core::StoreErrorKind;
use lease_queue::{Answer, QueueStore, Settle, Settled};

use crate::support::{
    assert_unchanged, base, everything, item, name, next, of_key, one, put, queues,
};

#[tokio::test]
async fn a_foreign_value_is_refused_and_left_as_it_is() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    // Sets, the counter and the birth marker: each is of the wrong kind, in turn.
    for part in ["", ":n", ":ready", ":claimed", ":living", ":l:g"] {
        server.flush_all().unwrap();
        let spoiled = format!("{}{part}", base("jobs"));
        let value: &[&str] = match part {
            "" | ":n" => &["SET", &spoiled, "somebody else's"],
            _ => &["SET", &spoiled, "x"],
        };
        server.command(value).unwrap();
        let before = everything(&server, "");
        let put = store.put(&queue, &[item("work", Some("g"))]).await;
        if part != ":claimed" {
            let error = put.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Refusing, "{part}: {error}");
            assert!(error.to_string().contains("left as it"), "{error}");
            // Born it may be.
            let after = everything(&server, "").into_iter();
            let after = after.filter(|(name, _)| part.is_empty() || *name != base("jobs"));
            assert_eq!(after.collect::<Vec<_>>(), before, "{part}");
        }
        if matches!(part, ":ready" | ":claimed") {
            let error = store.claim(&queue, &next(1, 1_000)).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Refusing, "{part}: {error}");
        }
    }
}

#[tokio::test]
async fn a_spoiled_item_is_in_nobodys_way() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    let all: Vec<_> = (0..4).map(|n| item(&n.to_string(), None)).collect();
    put(&store, &queue, &all).await;
    let place = |n: usize| format!("{}:m:{}", base("jobs"), all[n].id);
    server.command(&["DEL", &place(0)]).unwrap();
    server
        .command(&["SET", &place(1), "somebody else's"])
        .unwrap();
    server.command(&["HSET", &place(2), "a", "many"]).unwrap();
    let claimed = one(store.claim(&queue, &next(4, 60_000)).await.unwrap());
    assert_eq!(claimed.claim.item, all[3].id);
    let done = store
        .settle(&queue, &[(claimed.claim, Settle::Complete)])
        .await;
    assert_eq!(done[0].clone().unwrap(), Settled::Done);
    // What is left is nothing that can be claimed, and says so.
    let error = store.claim(&queue, &next(4, 60_000)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    let held = server.command(&["GET", &place(1)]).unwrap();
    assert_eq!(held.text(), Some("somebody else's"));
}

#[tokio::test]
async fn a_spoiled_record_of_a_lane_is_refused() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    put(&store, &queue, &[item("work", Some("g"))]).await;
    let record = format!("{}:g:g", base("jobs"));
    for torn in [
        "",
        "Q1g",
        &format!("Q1g{}", "\u{7f}".repeat(120)),
        &"x".repeat(115),
    ] {
        server.command(&["SET", &record, torn]).unwrap();
        let before = everything(&server, "");
        let error = store.claim(&queue, &next(1, 60_000)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
        assert_unchanged(&server, "", &before);
    }
    server.command(&["DEL", &record]).unwrap();
    let claimed = one(store.claim(&queue, &next(1, 60_000)).await.unwrap());
    server.command(&["SET", &record, "x"]).unwrap();
    let settled = store
        .settle(&queue, &[(claimed.claim, Settle::Complete)])
        .await;
    let error = settled[0].clone().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    // Keys do not meet with it.
    let key = store.claim(&queue, &of_key("g", 1_000)).await.unwrap();
    assert!(matches!(key, Answer::Claimed { .. }));
}
