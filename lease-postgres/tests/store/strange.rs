//! What somebody else has done to the tables and the functions.

use std::time::Duration;

use futures_util::StreamExt as _;
use lease_core::{AcquireOutcome, LeaseBackend, LostCause, ReleaseOutcome, RenewOutcome};
use lease_postgres::must_begin_again;
use lease_postgres::sqlx::{AssertSqlSafe, query_scalar};

use crate::support::transactions::{LEVELS, cause, open, run, snapshot};
use crate::support::{LONG, ask, connection, grant, key, options, owner, renewal};

#[tokio::test]
async fn no_grant_that_has_ended_is_held_after_the_table_was_rewritten() {
    let store = open("rewritten").await;
    let guard = store.in_transaction();
    for rewrite in [
        "VACUUM FULL rewritten.lease_keys",
        "CLUSTER rewritten.lease_keys USING lease_keys_pkey",
    ] {
        for level in LEVELS {
            let (mut db, mut admin) = (connection().await, connection().await);
            let (me, mine) = grant(&store, "k", LONG).await.unwrap();
            snapshot(&mut db, level).await;
            store.release(&key("k"), me, mine).await.unwrap();
            let (next, newer) = grant(&store, "k", LONG).await.unwrap();
            run(&mut admin, rewrite).await;
            let held = guard.hold_grant(&mut db, &key("k"), me, mine).await;
            match level == LEVELS[0] {
                true => assert_eq!(cause(held), LostCause::TakenOver),
                false => assert!(must_begin_again(&held.unwrap_err()), "{level}: {rewrite}"),
            }
            // Begun again, the newest is held as ever.
            run(&mut db, "ROLLBACK").await;
            snapshot(&mut db, level).await;
            guard
                .hold_grant(&mut db, &key("k"), next, newer)
                .await
                .unwrap();
            run(&mut db, "ROLLBACK").await;
            store.release(&key("k"), next, newer).await.unwrap();
        }
    }
}

#[tokio::test]
async fn statements_that_are_gone_or_changed_are_prepared_anew() {
    let store = open("altered").await;
    let mut admin = connection().await;
    let (me, mine) = grant(&store, "k", LONG).await.unwrap();
    for (n, alter) in [
        // "cached plan must not change result type"
        "ALTER TABLE altered.lease_keys ALTER COLUMN label TYPE varchar",
        "ALTER TABLE altered.lease_keys ALTER COLUMN label TYPE text",
        // In the store's own session, by the next change of a row.
        "CREATE FUNCTION altered.forget() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN EXECUTE 'DEALLOCATE ALL'; RETURN NEW; END $$; \
         CREATE TRIGGER forget AFTER UPDATE OR INSERT ON altered.lease_keys \
         EXECUTE FUNCTION altered.forget()",
    ]
    .into_iter()
    .enumerate()
    {
        run(&mut admin, alter).await;
        for m in 0..3 {
            let name = format!("k{n}{m}");
            let (other, token) = grant(&store, &name, LONG).await.unwrap();
            let renewed = store.renew(&renewal("k", me, mine)).await.unwrap();
            assert_eq!(renewed, RenewOutcome::Renewed, "{alter}");
            let many = store.renew_many(&[renewal("k", me, mine)]).await;
            assert_eq!(*many[0].as_ref().unwrap(), RenewOutcome::Renewed, "{alter}");
            assert!(store.inspect(&key("k")).await.unwrap().holder.is_some());
            assert!(store.list("k").all(|one| async move { one.is_ok() }).await);
            let released = store.release(&key(&name), other, token).await.unwrap();
            assert_eq!(released, ReleaseOutcome::Released, "{alter}");
        }
    }
}

#[tokio::test]
async fn a_grant_without_an_expiry_is_lost_and_not_looked_at_for_ever() {
    let store = open("timeless").await;
    let (me, mine) = grant(&store, "k", LONG).await.unwrap();
    let mut db = connection().await;
    run(&mut db, "UPDATE timeless.lease_keys SET expires_us = NULL").await;
    run(&mut db, "BEGIN; SET LOCAL statement_timeout TO 5000").await;
    let guard = store.in_transaction();
    let held = guard.hold_grant(&mut db, &key("k"), me, mine).await;
    assert_eq!(cause(held), LostCause::Expired);
}

#[tokio::test]
async fn no_request_looks_through_the_tombstones_of_others() {
    // A table of which the server knows nothing yet but that it is empty.
    let options = options("through").connections(1);
    let store = options.open().await.unwrap();
    let mut admin = connection().await;
    run(&mut admin, "ANALYZE through.lease_tombstones").await;
    let (me, mine) = grant(&store, "k", LONG).await.unwrap();
    for _ in 0..100 {
        store.abandon(&key("k"), owner()).await.unwrap();
        let renewed = store.renew(&renewal("k", me, mine)).await.unwrap();
        assert_eq!(renewed, RenewOutcome::Renewed);
        let asked = store.acquire(&ask("k", owner(), LONG)).await.unwrap();
        assert!(matches!(asked, AcquireOutcome::Held(_)), "{asked:?}");
    }
    drop(store);
    // As its connection ends it says what it did.
    let read = |index: &str, what: &str| {
        format!(
            "SELECT coalesce(sum({what}), 0)::bigint FROM pg_stat_user_indexes \
             WHERE schemaname = 'through' AND indexrelname = 'lease_tombstones_{index}'"
        )
    };
    let said = async {
        loop {
            let sql = AssertSqlSafe(read("pkey", "idx_scan"));
            let scans: i64 = query_scalar(sql).fetch_one(&mut admin).await.unwrap();
            if scans >= 100 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, said).await.unwrap();
    let sql = AssertSqlSafe(read("until", "idx_tup_read"));
    let through: i64 = query_scalar(sql).fetch_one(&mut admin).await.unwrap();
    assert_eq!(through, 0);
}
