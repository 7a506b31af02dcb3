//! Rows that somebody wrote into by hand: never granted over while they may be live, in
//! no other's way, and no harm to a list.

use futures_util::TryStreamExt as _;
use lease_core::{Key, Label, Owner, StoreErrorKind, TokenRule, Ttl};
use lease_queue::postgres::PostgresQueues;
use lease_queue::{Answer, ClaimRequest, Claimed, QueueStore as _, Settle, Settled, What};

use crate::support::{LONG, claim, connection, item, jobs, next, open, owner, run};

const UNREADABLE: [&str; 8] = [
    "owner = NULL",
    "token = NULL",
    "token = -5",
    "token = 9007199254740992",
    "expires_us = NULL",
    "standing = NULL",
    "standing = 7",
    "owner = NULL, token = NULL, standing = NULL",
];

fn ask(name: &str, owner: Owner) -> ClaimRequest {
    ClaimRequest {
        owner,
        ttl: Ttl::new(LONG).unwrap(),
        label: Label::EMPTY,
        what: What::Key {
            key: Key::new(name).unwrap(),
            rule: TokenRule::NEXT,
            waits: None,
        },
    }
}

async fn granted(store: &PostgresQueues, name: &str) -> Claimed {
    match store.claim(&jobs(), &ask(name, owner())).await.unwrap() {
        Answer::Claimed { mut items, .. } => items.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn set(schema: &str, name: &str, values: &str) {
    let sql = format!("UPDATE {schema}.lease_queue_lanes SET {values} WHERE name = '{name}'");
    run(&mut connection().await, &sql).await;
}

#[tokio::test]
async fn nobody_is_granted_a_key_over_what_may_be_a_live_claim() {
    let store = open("perhaps").await;
    for (n, broken) in UNREADABLE.into_iter().enumerate() {
        let name = format!("k{n}");
        let mine = granted(&store, &name).await.claim;
        set("perhaps", &name, broken).await;
        for asker in [mine.owner, owner()] {
            let error = store.claim(&jobs(), &ask(&name, asker)).await.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Refusing, "{broken}: {error}");
            assert!(error.to_string().contains("repair"), "{broken}: {error}");
        }
        let looked = store.inspect(&jobs(), &Key::new(&name).unwrap()).await;
        let error = looked.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{broken}: {error}");
        // And its owner is not told that it goes on.
        let extend = Settle::Extend(Ttl::new(LONG).unwrap());
        let outcome = store.settle(&jobs(), &[(mine, extend)]).await;
        assert!(matches!(outcome[0], Ok(Settled::Lost(_))), "{outcome:?}");
    }
    granted(&store, "sound").await;
}

#[tokio::test]
async fn an_expired_claim_that_cannot_be_read_is_in_nobodys_way() {
    let store = open("unreadable").await;
    for (n, (broken, told)) in [
        ("label = repeat('x', 300)", false),
        ("label = NULL", false),
        ("token = -5", false),
        ("standing = NULL", false),
        ("owner = NULL", true),
        ("granted_us = NULL", true),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("k{n}");
        let first = granted(&store, &name).await.claim.token;
        let over = format!("{broken}, expires_us = expires_us - 70000000");
        set("unreadable", &name, &over).await;
        match store.claim(&jobs(), &ask(&name, owner())).await.unwrap() {
            Answer::Claimed {
                items, taken_over, ..
            } => {
                assert!(items[0].claim.token > first, "{broken}");
                assert_eq!(taken_over.is_some(), told, "{broken}");
            }
            other => panic!("{broken}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_item_whose_claim_cannot_be_read_is_refused_and_keeps_no_other_waiting() {
    for (n, broken) in UNREADABLE.into_iter().enumerate() {
        let schema = format!("waiting{n}");
        let store = open(&schema).await;
        let first = item(None, "1");
        store
            .put(&jobs(), std::slice::from_ref(&first))
            .await
            .unwrap();
        let mine = claim(&store, 1).await.remove(0).claim;
        let name = mine.item.to_string();
        // As if its time was over, unless that is what cannot be read.
        set(&schema, &name, &format!("{broken}, next_us = 1")).await;
        let refused = store.claim(&jobs(), &next(owner(), 1, LONG)).await;
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{broken}: {error}");
        store.put(&jobs(), &[item(None, "2")]).await.unwrap();
        set(&schema, &name, "next_us = 1").await;
        let other = claim(&store, 1).await.remove(0);
        assert_ne!(other.claim.item, mine.item, "{broken}");
        assert_eq!(other.body, "2", "{broken}");
    }
}

#[tokio::test]
async fn one_row_that_cannot_be_read_hides_no_other_from_a_list() {
    let store = open("listed").await;
    for (broken, shown) in [
        ("granted_us = -9223372036854775808", true),
        ("expires_us = 9223372036854775807", true),
        ("expires_us = -9223372036854775808", true),
        ("granted_us = 9223372036854775807", true),
        ("granted_us = NULL", false),
        ("expires_us = NULL", false),
        ("label = NULL", false),
        ("standing = 7", false),
        ("mark = 9223372036854775807", false),
    ] {
        let mut db = connection().await;
        run(&mut db, "DELETE FROM listed.lease_queue_lanes").await;
        for name in ["a", "b", "c"] {
            granted(&store, name).await;
        }
        set("listed", "b", broken).await;
        let states: Vec<_> = store.keys(&jobs(), "").try_collect().await.unwrap();
        let names: Vec<_> = states.iter().map(|state| state.key.as_str()).collect();
        let expected: &[_] = match shown {
            true => &["a", "b", "c"],
            false => &["a", "c"],
        };
        assert_eq!(names, expected, "{broken}");
        let looked = store.inspect(&jobs(), &Key::new("b").unwrap()).await;
        assert_eq!(looked.is_ok(), shown, "{broken}: {looked:?}");
        if let Err(error) = looked {
            assert_eq!(error.kind(), StoreErrorKind::Refusing, "{broken}: {error}");
        }
    }
}

#[tokio::test]
async fn times_that_cannot_be_subtracted_hide_no_item() {
    let store = open("times").await;
    let two = [item(None, "1"), item(None, "2")];
    store.put(&jobs(), &two).await.unwrap();
    let mut db = connection().await;
    for broken in [
        "put_us = -9223372036854775808",
        "put_us = 9223372036854775807",
        "ready_us = -9223372036854775808",
        "ready_us = 9223372036854775807",
    ] {
        let sql = format!(
            "UPDATE times.lease_queue_items SET {broken} WHERE id = '\\x{}'",
            two[0].id
        );
        run(&mut db, &sql).await;
        let listed: Vec<_> = store.items(&jobs(), false).try_collect().await.unwrap();
        assert_eq!(listed.len(), 2, "{broken}");
        let depth = store.depth(&jobs()).await.unwrap();
        assert_eq!(depth.ready + depth.delayed, 2, "{broken}");
    }
}
