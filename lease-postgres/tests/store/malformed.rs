//! Rows that somebody wrote into by hand: never granted over while they may be live,
//! and no harm to any other key.

use futures_util::TryStreamExt as _;
use lease_core::{
    AcquireOutcome, AdmitError, Gate as _, LeaseBackend, LostCause, RenewOutcome, StoreErrorKind,
};
use lease_postgres::PostgresStore;

use crate::support::{LONG, ask, grant, key, options, owner, renewal, server};

/// A store of one schema, with keys that were all granted once.
struct Tampered {
    schema: &'static str,
    store: PostgresStore,
}

impl Tampered {
    async fn new(schema: &'static str) -> Self {
        let store = options(schema).open().await.unwrap();
        Self { schema, store }
    }

    fn set(&self, name: &str, values: &str) {
        server()
            .sql(&format!(
                "UPDATE {}.lease_keys SET {values} WHERE key = '{name}'",
                self.schema
            ))
            .unwrap();
    }

    async fn listed(&self) -> Vec<String> {
        let states: Vec<_> = self.store.list("").try_collect().await.unwrap();
        states.iter().map(|state| state.key.to_string()).collect()
    }
}

#[tokio::test]
async fn an_expired_holder_that_cannot_be_read_is_in_nobodys_way() {
    let world = Tampered::new("unreadable").await;
    for (n, (broken, told)) in [
        ("label = repeat('x', 300)", false),
        ("label = NULL", false),
        ("label = E'two\\nlines'", false),
        ("token = -5", false),
        ("token = 9007199254740992", false),
        ("token = NULL", false),
        ("standing = NULL", false),
        ("standing = 7", true),
        ("owner = NULL", true),
        ("granted_us = NULL", true),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("k{n}");
        let (_, first) = grant(&world.store, &name, LONG).await.unwrap();
        world.set(
            &name,
            &format!("{broken}, expires_us = expires_us - 70000000"),
        );
        let next = world.store.acquire(&ask(&name, owner(), LONG)).await;
        let AcquireOutcome::Granted(granted) = next.unwrap() else {
            panic!("{broken}: the time of the former holder is over");
        };
        assert!(granted.token > first, "{broken}");
        assert_eq!(granted.taken_over.is_some(), told, "{broken}");
        // What the next holder wrote over it can be read again.
        let state = world.store.inspect(&key(&name)).await.unwrap();
        assert_eq!(state.holder.unwrap().token, granted.token);
    }
}

#[tokio::test]
async fn nobody_is_granted_a_key_over_what_may_be_a_live_grant() {
    let world = Tampered::new("perhaps").await;
    for (n, broken) in [
        "owner = NULL",
        "token = NULL",
        "token = -5",
        "token = 9007199254740992",
        "expires_us = NULL",
        "standing = NULL",
        "standing = 7",
        "standing = 1, expires_us = NULL",
        "owner = NULL, token = NULL, standing = NULL",
        "token = NULL, standing = NULL, expires_us = NULL",
        "mark = 0",
        "mark = -7",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("k{n}");
        let (me, mine) = grant(&world.store, &name, LONG).await.unwrap();
        world.set(&name, broken);
        for asker in [me, owner()] {
            let refused = world.store.acquire(&ask(&name, asker, LONG)).await;
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Refusing, "{broken}: {error}");
            assert!(error.to_string().contains("repair"), "{broken}: {error}");
        }
        let error = world.store.inspect(&key(&name)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{broken}: {error}");
        // And its holder is not told that it goes on, but for a mark, which is not its
        // grant's.
        match world.store.renew(&renewal(&name, me, mine)).await {
            Ok(RenewOutcome::Lost(_)) => {}
            Ok(RenewOutcome::Renewed) if broken.starts_with("mark") => {}
            Err(error) => assert_eq!(error.kind(), StoreErrorKind::Refusing, "{broken}: {error}"),
            other => panic!("{broken}: {other:?}"),
        }
        if broken.starts_with("mark") {
            continue;
        }
        // Nothing was changed, so that it can be repaired.
        let kept = server()
            .sql(&format!(
                "SELECT mark FROM perhaps.lease_keys WHERE key = '{name}'"
            ))
            .unwrap();
        assert_eq!(kept.integer(), i64::try_from(mine.get()).ok(), "{broken}");
    }
    // All others are as they were.
    let (me, mine) = grant(&world.store, "sound", LONG).await.unwrap();
    let renewed = world.store.renew(&renewal("sound", me, mine)).await;
    assert_eq!(renewed.unwrap(), RenewOutcome::Renewed);
}

#[tokio::test]
async fn one_row_that_cannot_be_read_hides_no_other_from_a_list() {
    let world = Tampered::new("listed").await;
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
        ("mark = 0", false),
        ("mark = 7", false),
    ] {
        server().sql("DELETE FROM listed.lease_keys").unwrap();
        for name in ["a", "b", "c"] {
            grant(&world.store, name, LONG).await.unwrap();
        }
        world.set("b", broken);
        let expected: &[_] = match shown {
            true => &["a", "b", "c"],
            false => &["a", "c"],
        };
        assert_eq!(world.listed().await, expected, "{broken}");
        let state = world.store.inspect(&key("b")).await;
        match state {
            Ok(_) => assert!(shown, "{broken}"),
            Err(error) => {
                assert!(!shown, "{broken}: {error}");
                assert_eq!(error.kind(), StoreErrorKind::Refusing, "{broken}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_holder_whose_row_cannot_be_read_is_no_lost_connection() {
    let world = Tampered::new("held").await;
    for (broken, held) in [
        ("label = NULL", false),
        ("label = repeat('x', 300)", false),
        ("granted_us = NULL", false),
        ("granted_us = -9223372036854775808", true),
        ("expires_us = 9223372036854775807", true),
    ] {
        server().sql("DELETE FROM held.lease_keys").unwrap();
        let (me, mine) = grant(&world.store, "k", LONG).await.unwrap();
        world.set("k", broken);
        match world.store.acquire(&ask("k", owner(), LONG)).await {
            Ok(AcquireOutcome::Held(_)) => assert!(held, "{broken}"),
            Ok(other) => panic!("{broken}: {other:?}"),
            Err(error) => {
                assert!(!held, "{broken}: {error}");
                assert_eq!(error.kind(), StoreErrorKind::Refusing, "{broken}: {error}");
            }
        }
        // Its holder needs none of it.
        let renewed = world.store.renew(&renewal("k", me, mine)).await.unwrap();
        assert_eq!(renewed, RenewOutcome::Renewed, "{broken}");
        world.store.release(&key("k"), me, mine).await.unwrap();
        let again = world.store.renew(&renewal("k", me, mine)).await.unwrap();
        assert_eq!(again, RenewOutcome::Lost(LostCause::Released), "{broken}");
    }
}

#[tokio::test]
async fn an_admitted_token_that_is_null_is_refused_and_nobody_waits_for_it() {
    let world = Tampered::new("null_gate").await;
    let resource = key("resource");
    let first = lease_core::Token::new(7).unwrap();
    world.store.admit(&resource, first).await.unwrap();
    server()
        .sql("ALTER TABLE null_gate.lease_gate ALTER token DROP NOT NULL")
        .unwrap();
    server()
        .sql("UPDATE null_gate.lease_gate SET token = NULL")
        .unwrap();
    let begun = std::time::Instant::now();
    match world.store.admit(&resource, first).await.unwrap_err() {
        AdmitError::Store(error) => {
            assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
            assert!(error.to_string().contains("no token"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(
        begun.elapsed() < LONG,
        "it is not asked for again and again"
    );
    let refused =
        server().sql("SET statement_timeout = '10s'; SELECT null_gate.lease_admit('resource', 9)");
    let words = refused.unwrap_err().to_string();
    assert!(words.contains("holds none"), "{words}");
    let other = key("another");
    world.store.admit(&other, first).await.unwrap();
}
