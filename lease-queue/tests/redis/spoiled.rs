//! Somebody else's values at the names of a queue.

use std::time::Duration;

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
    for part in [
        "", ":n", ":due", ":living", ":delayed", ":behind", ":aside", ":owners", ":l:g",
    ] {
        server.flush_all().unwrap();
        let spoiled = format!("{}{part}", base("jobs"));
        let value: &[&str] = match part {
            "" | ":n" => &["SET", &spoiled, "somebody else's"],
            _ => &["SET", &spoiled, "x"],
        };
        server.command(value).unwrap();
        let before = everything(&server, "");
        let put = store.put(&queue, &[item("work", Some("g"))]).await;
        if part != ":owners" {
            let error = put.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Refusing, "{part}: {error}");
            assert!(error.to_string().contains("left as it"), "{error}");
            // Born it may be.
            let after = everything(&server, "").into_iter();
            let after = after.filter(|(name, _)| part.is_empty() || *name != base("jobs"));
            assert_eq!(after.collect::<Vec<_>>(), before, "{part}");
        }
        if matches!(part, ":due" | ":owners") {
            let before = everything(&server, "");
            let error = store.claim(&queue, &next(1, 1_000)).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Refusing, "{part}: {error}");
            assert_unchanged(&server, "", &before);
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
    server.command(&["HSET", &place(2), "h", "many"]).unwrap();
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

#[tokio::test]
async fn any_number_of_spoiled_items_is_in_nobodys_way_for_long() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    let spoiled: Vec<_> = (0..100).map(|n| item(&n.to_string(), None)).collect();
    put(&store, &queue, &spoiled).await;
    let fine = item("fine", None);
    put(&store, &queue, std::slice::from_ref(&fine)).await;
    for one in &spoiled {
        let hash = format!("{}:m:{}", base("jobs"), one.id);
        server.command(&["HSET", &hash, "h", "x"]).unwrap();
    }
    let mut refusals = 0;
    let claimed = loop {
        match store.claim(&queue, &next(1, 60_000)).await {
            Ok(answer) => break one(answer),
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}"),
        }
        refusals += 1;
        assert!(refusals < 4, "each claim sets some aside");
    };
    assert_eq!(claimed.claim.item, fine.id);
    let depth = store.depth(&queue).await.unwrap();
    assert_eq!((depth.ready, depth.delayed, depth.in_flight), (100, 0, 1));
    // They come back, in case that somebody mends them.
    let answer = store.claim(&queue, &next(1, 60_000)).await;
    match answer {
        Ok(Answer::Nothing { next }) => assert!(next.unwrap() <= Duration::from_secs(10)),
        other => assert_eq!(other.unwrap_err().kind(), StoreErrorKind::Refusing),
    }
}

#[tokio::test]
async fn a_spoiled_item_behind_it_keeps_no_other_from_being_completed() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    let all: Vec<_> = (0..3).map(|n| item(&n.to_string(), Some("g"))).collect();
    put(&store, &queue, &all).await;
    let hash = format!("{}:m:{}", base("jobs"), all[1].id);
    server.command(&["SET", &hash, "somebody else's"]).unwrap();
    let claimed = one(store.claim(&queue, &next(1, 60_000)).await.unwrap());
    let settled = store
        .settle(&queue, &[(claimed.claim, Settle::Complete)])
        .await;
    assert_eq!(settled[0].clone().unwrap(), Settled::Done);
    // The group waits for it.
    let error = store.claim(&queue, &next(1, 60_000)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
}

#[tokio::test]
async fn a_claim_that_looks_due_before_its_time_is_left_alone_until_then() {
    let server = RedisServer::builder().start().unwrap();
    let store = queues(&server).await;
    let queue = name("jobs");
    for (number, group) in [None, Some("g")].into_iter().enumerate() {
        let work = item("work", group);
        put(&store, &queue, std::slice::from_ref(&work)).await;
        one(store.claim(&queue, &next(1, 60_000)).await.unwrap());
        // As a clock makes it that was ahead and has stepped back.
        let due = format!("{}:due", base("jobs"));
        let member = format!("{:016}{}", number + 1, work.id);
        let added = server.command(&["ZADD", &due, "1", &member]).unwrap();
        assert_eq!(added.integer(), Some(0));
        let answer = store.claim(&queue, &next(1, 60_000)).await.unwrap();
        let Answer::Nothing { next: Some(next) } = answer else {
            panic!("{answer:?}");
        };
        assert!(next > Duration::from_secs(30), "{next:?}");
        assert_eq!(
            store.depth(&queue).await.unwrap().in_flight,
            number as u64 + 1
        );
    }
}
