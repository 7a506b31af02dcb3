//! The lease inside the user's own transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lease_core::{
    AcquireOutcome, AdmitError, Error, FenceWhen, LeaseBackend, Leases, LostCause, Released,
    RenewOutcome, StoreErrorKind,
};
use lease_postgres::must_begin_again;
use lease_postgres::sqlx::{Connection as _, raw_sql};

use crate::support::transactions::{LEVELS, cause, expire, kind, open, run, snapshot, token};
use crate::support::{LONG, ask, connection, grant, key, options, owner, renewal};

#[tokio::test]
async fn what_is_held_is_renewed_and_nothing_ends_it_before_the_commit() {
    let store = open("held").await;
    for level in LEVELS {
        let name = &level.replace(' ', "_");
        let (me, mine) = grant(&store, name, LONG).await.unwrap();
        let (mut db, mut admin) = (connection().await, connection().await);
        run(&mut db, &format!("BEGIN ISOLATION LEVEL {level}")).await;
        let guard = store.in_transaction();
        guard
            .hold_grant(&mut db, &key(name), me, mine)
            .await
            .unwrap();
        for _ in 0..2 {
            let renewed = store.renew(&renewal(name, me, mine)).await.unwrap();
            assert_eq!(renewed, RenewOutcome::Renewed);
            let many = store.renew_many(&[renewal(name, me, mine)]).await;
            assert!(matches!(many[..], [Ok(RenewOutcome::Renewed)]), "{many:?}");
        }
        // More than once, and after renewals.
        guard
            .hold_grant(&mut db, &key(name), me, mine)
            .await
            .unwrap();
        for error in [
            store.release(&key(name), me, mine).await.map(drop),
            store.abandon(&key(name), me).await,
            store
                .fence(&key(name), token(1 << 52), FenceWhen::Immediately)
                .await
                .map(drop),
        ] {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
        }
        expire(&mut admin, "held", name, -1).await;
        let began = Instant::now();
        let other = store.acquire(&ask(name, owner(), LONG)).await.unwrap();
        let AcquireOutcome::Held(holder) = other else {
            panic!("{level}: {other:?}");
        };
        assert_eq!((holder.token, holder.remaining), (mine, Duration::ZERO));
        assert!(began.elapsed() >= Duration::from_millis(250));
        run(&mut db, "COMMIT").await;
        let other = store.acquire(&ask(name, owner(), LONG)).await.unwrap();
        assert!(matches!(other, AcquireOutcome::Granted(_)), "{other:?}");
    }
}

#[tokio::test]
async fn the_newest_grant_counts_and_not_the_snapshot() {
    let store = open("newest").await;
    let guard = store.in_transaction();
    let (mut db, mut admin) = (connection().await, connection().await);
    for level in LEVELS {
        let committed = level == LEVELS[0];
        let name = &level.replace(' ', "_");
        // Before the key's first grant.
        snapshot(&mut db, level).await;
        let (me, mine) = grant(&store, name, LONG).await.unwrap();
        let first = guard.hold_grant(&mut db, &key(name), me, mine).await;
        match first {
            Ok(()) => assert!(committed),
            Err(error) => assert!(!committed && must_begin_again(&error), "{error}"),
        }
        run(&mut db, "ROLLBACK").await;
        // A renewal since, on a live grant: nothing to begin again for.
        snapshot(&mut db, level).await;
        store.renew(&renewal(name, me, mine)).await.unwrap();
        guard
            .hold_grant(&mut db, &key(name), me, mine)
            .await
            .unwrap();
        run(&mut db, "ROLLBACK").await;
        // The snapshot shows it expired, and it was renewed since.
        expire(&mut admin, "newest", name, -1).await;
        snapshot(&mut db, level).await;
        expire(&mut admin, "newest", name, 60_000).await;
        match guard.hold_grant(&mut db, &key(name), me, mine).await {
            Ok(()) => assert!(committed),
            Err(error) => {
                assert!(!committed && must_begin_again(&error), "{error}");
                assert_eq!(kind(&error), StoreErrorKind::Unavailable);
            }
        }
        run(&mut db, "ROLLBACK").await;
        // The snapshot shows it live, and it was taken over since; the newer
        // grant was even renewed.
        snapshot(&mut db, level).await;
        expire(&mut admin, "newest", name, -1).await;
        let (other, theirs) = grant(&store, name, LONG).await.unwrap();
        store.renew(&renewal(name, other, theirs)).await.unwrap();
        match guard.hold_grant(&mut db, &key(name), me, mine).await {
            Err(Error::Lost(lost)) => {
                assert!(committed);
                assert_eq!(cause(Err(Error::Lost(lost))), LostCause::TakenOver);
            }
            Err(error) => assert!(!committed && must_begin_again(&error), "{error}"),
            Ok(()) => panic!("{level}: held what somebody else has"),
        }
        run(&mut db, "ROLLBACK").await;
    }
}

#[tokio::test]
async fn a_renewal_that_is_under_way_is_waited_for_and_not_kept_out_afterwards() {
    let store = open("under_way").await;
    let (me, mine) = grant(&store, "k", LONG).await.unwrap();
    let (mut db, mut admin) = (connection().await, connection().await);
    expire(&mut admin, "under_way", "k", -1).await;
    run(&mut admin, "BEGIN").await;
    expire(&mut admin, "under_way", "k", 60_000).await;
    let mut tx = db.begin().await.unwrap();
    let guard = store.in_transaction();
    let k = key("k");
    let (held, ()) = tokio::join!(guard.hold_grant(&mut tx, &k, me, mine), async {
        crate::support::until(|| {
            let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
            crate::support::server().sql(waits).unwrap().integer() > Some(0)
        })
        .await;
        run(&mut admin, "COMMIT").await;
    });
    held.unwrap();
    let renewed = store.renew(&renewal("k", me, mine)).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Renewed);
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn a_lost_lease_says_why() {
    let store = open("lost").await;
    let guard = store.in_transaction();
    let (mut db, mut admin) = (connection().await, connection().await);
    for level in LEVELS {
        let grants = [
            ("expired", LostCause::Expired),
            ("released", LostCause::Released),
            ("abandoned", LostCause::Released),
            ("fenced", LostCause::Revoked),
            ("taken", LostCause::TakenOver),
            ("never", LostCause::Unknown),
        ];
        for (what, expected) in grants {
            let name = &format!("{what}_{}", level.replace(' ', "_"));
            let (mut me, mut mine) = (owner(), token(7));
            if what != "never" {
                (me, mine) = grant(&store, name, LONG).await.unwrap();
            }
            match what {
                "expired" => expire(&mut admin, "lost", name, -1).await,
                "released" => drop(store.release(&key(name), me, mine).await.unwrap()),
                "abandoned" => store.abandon(&key(name), me).await.unwrap(),
                "fenced" => {
                    let above = token(mine.get() + 1);
                    let fenced = store.fence(&key(name), above, FenceWhen::AtExpiry).await;
                    fenced.unwrap();
                }
                "taken" => {
                    expire(&mut admin, "lost", name, -1).await;
                    grant(&store, name, LONG).await.unwrap();
                }
                _ => {}
            }
            run(&mut db, &format!("BEGIN ISOLATION LEVEL {level}")).await;
            let held = guard.hold_grant(&mut db, &key(name), me, mine).await;
            assert_eq!(cause(held), expected, "{name}");
            // Whoever goes on all the same commits nothing.
            let next = raw_sql("SELECT 1").execute(&mut db).await.unwrap_err();
            assert_eq!(next.as_database_error().unwrap().code().unwrap(), "25P02");
            run(&mut db, "ROLLBACK").await;
        }
    }
    let keys = "SELECT count(*) FROM lost.lease_keys WHERE key LIKE 'never%'";
    let left = crate::support::server().sql(keys).unwrap().integer();
    assert_eq!(left, Some(0), "asking leaves nothing");
}

#[tokio::test]
async fn nothing_is_held_or_admitted_outside_of_a_transaction() {
    let store = open("outside").await;
    let guard = store.in_transaction();
    let (me, mine) = grant(&store, "k", LONG).await.unwrap();
    let mut db = connection().await;
    let refused = |error: &Error| {
        assert_eq!(kind(error), StoreErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("begin one"), "{error}");
    };
    refused(
        &guard
            .hold_grant(&mut db, &key("k"), me, mine)
            .await
            .unwrap_err(),
    );
    let admitted = guard.admit(&mut db, &key("r"), mine).await;
    assert!(
        matches!(admitted, Err(AdmitError::Store(_))),
        "{admitted:?}"
    );
    // Begun by SQL, it is one.
    run(&mut db, "BEGIN").await;
    guard
        .hold_grant(&mut db, &key("k"), me, mine)
        .await
        .unwrap();
    run(&mut db, "ROLLBACK").await;
    // Ended by SQL, behind the driver's back, it is none.
    let mut tx = db.begin().await.unwrap();
    run(&mut tx, "COMMIT").await;
    refused(
        &guard
            .hold_grant(&mut tx, &key("k"), me, mine)
            .await
            .unwrap_err(),
    );
    let admitted = guard.admit(&mut tx, &key("r"), mine).await;
    assert!(
        matches!(admitted, Err(AdmitError::Store(_))),
        "{admitted:?}"
    );
    let _ = tx.rollback().await;
    let gate = "SELECT count(*) FROM outside.lease_gate";
    assert_eq!(
        crate::support::server().sql(gate).unwrap().integer(),
        Some(0)
    );
    // After a failure, in a read-only one, and in a database without leases.
    run(&mut db, "BEGIN").await;
    drop(raw_sql("SELECT 1/0").execute(&mut db).await.unwrap_err());
    let error = guard
        .hold_grant(&mut db, &key("k"), me, mine)
        .await
        .unwrap_err();
    assert_eq!(kind(&error), StoreErrorKind::Refusing, "{error}");
    run(&mut db, "ROLLBACK; BEGIN READ ONLY").await;
    let error = guard
        .hold_grant(&mut db, &key("k"), me, mine)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
    run(&mut db, "ROLLBACK; BEGIN").await;
    let elsewhere = options("no_such_schema").in_transaction();
    let error = elsewhere
        .hold_grant(&mut db, &key("k"), me, mine)
        .await
        .unwrap_err();
    assert_eq!(kind(&error), StoreErrorKind::Refusing, "{error}");
    assert!(
        error.to_string().contains("not the store's database"),
        "{error}"
    );
}

#[tokio::test]
async fn a_holder_may_release_and_a_waiter_wait_while_a_transaction_holds() {
    let store = options("waiting").open().await.unwrap();
    let guard = store.in_transaction();
    let leases = Leases::new(Arc::new(store.clone()));
    for released in [true, false] {
        let name = format!("released {released}");
        let lease = leases.lease(name.as_str()).acquire().await.unwrap();
        let mut db = connection().await;
        let mut tx = db.begin().await.unwrap();
        guard.hold(&mut tx, &lease).await.unwrap();
        let others = Leases::new(Arc::new(store.clone()));
        let waiter = tokio::spawn({
            let others = others.clone();
            let name = name.clone();
            async move { others.lease(name.as_str()).ttl(LONG).acquire().await }
        });
        let releasing = match released {
            true => Some(tokio::spawn(lease.release())),
            false => {
                drop(lease.detach().unwrap());
                expire(&mut connection().await, "waiting", &name, -1).await;
                None
            }
        };
        // Long enough for everybody to meet the lock, many times.
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert!(!waiter.is_finished());
        assert!(releasing.as_ref().is_none_or(|r| !r.is_finished()));
        tx.commit().await.unwrap();
        let committed = Instant::now();
        if let Some(releasing) = releasing {
            assert_eq!(releasing.await.unwrap().unwrap(), Released::Freed);
        }
        let lease = waiter.await.unwrap().unwrap();
        assert!(
            committed.elapsed() < Duration::from_secs(5),
            "{:?}",
            committed.elapsed()
        );
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_rollback_to_a_savepoint_before_it_undoes_a_hold() {
    let store = open("savepoint").await;
    let (me, mine) = grant(&store, "k", LONG).await.unwrap();
    let mut db = connection().await;
    let mut tx = db.begin().await.unwrap();
    let mut inner = tx.begin().await.unwrap();
    let guard = store.in_transaction();
    guard
        .hold_grant(&mut inner, &key("k"), me, mine)
        .await
        .unwrap();
    inner.rollback().await.unwrap();
    store.release(&key("k"), me, mine).await.unwrap();
    tx.commit().await.unwrap();
    // One that is kept keeps the lease, too.
    let (me, mine) = grant(&store, "k", LONG).await.unwrap();
    let mut tx = db.begin().await.unwrap();
    let mut inner = tx.begin().await.unwrap();
    guard
        .hold_grant(&mut inner, &key("k"), me, mine)
        .await
        .unwrap();
    inner.commit().await.unwrap();
    drop(store.release(&key("k"), me, mine).await.unwrap_err());
    tx.commit().await.unwrap();
}
