//! What somebody else has done to the tables and the functions.

use lease_core::{LeaseBackend, LostCause};
use lease_postgres::must_begin_again;

use crate::support::{LONG, connection, grant, key};
use crate::transactions::{LEVELS, cause, open, run, snapshot};

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
