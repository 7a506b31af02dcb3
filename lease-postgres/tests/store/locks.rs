//! Rows that somebody else keeps locked.

use std::time::{Duration, Instant};

use lease_core::{AcquireOutcome, Gate, LeaseBackend, RenewOutcome, StoreErrorKind, Token};
use lease_postgres::sqlx::{AssertSqlSafe, Connection as _, raw_sql};

use crate::support::{LONG, ask, connection, grant, key, options, owner, renewal};

const PATIENCE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_locked_row_keeps_only_its_own_key_waiting() {
    let options = options("locked").response_timeout(PATIENCE);
    let store = options.connections(1).open().await.unwrap();
    for name in ["locked", "free"] {
        let (me, token) = grant(&store, name, LONG).await.unwrap();
        store.release(&key(name), me, token).await.unwrap();
    }
    let mut other = connection().await;
    let mut tx = other.begin().await.unwrap();
    raw_sql("SELECT FROM locked.lease_keys WHERE key = 'locked' FOR UPDATE")
        .execute(&mut *tx)
        .await
        .unwrap();
    let began = Instant::now();
    let waits = ask("locked", owner(), LONG);
    let (locked, free) = tokio::join!(store.acquire(&waits), async {
        let free = grant(&store, "free", LONG).await;
        (free, began.elapsed())
    });
    let error = locked.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("locked"), "{error}");
    assert!(free.0.is_ok() && free.1 < PATIENCE, "{free:?}");
    // It had no effect, and the row is as good as before.
    tx.rollback().await.unwrap();
    grant(&store, "locked", LONG).await.unwrap();
}

#[tokio::test]
async fn a_grant_lasts_from_when_its_row_came_free() {
    let store = options("late").open().await.unwrap();
    let (me, token) = grant(&store, "k", LONG).await.unwrap();
    store.release(&key("k"), me, token).await.unwrap();
    let mut other = connection().await;
    let mut tx = other.begin().await.unwrap();
    raw_sql("SELECT FROM late.lease_keys FOR UPDATE")
        .execute(&mut *tx)
        .await
        .unwrap();
    let ttl = Duration::from_secs(1);
    let request = ask("k", owner(), ttl);
    let acquiring = store.acquire(&request);
    let (outcome, ()) = tokio::join!(acquiring, async {
        tokio::time::sleep(ttl + Duration::from_millis(200)).await;
        tx.rollback().await.unwrap();
    });
    assert!(matches!(outcome.unwrap(), AcquireOutcome::Granted(_)));
    let holder = store.inspect(&key("k")).await.unwrap().holder.unwrap();
    assert!(holder.remaining > ttl / 4, "{holder:?}");
}

#[tokio::test]
async fn a_grant_that_is_kept_from_take_over_is_renewed_all_the_same() {
    let options = options("kept").response_timeout(PATIENCE);
    let store = options.open().await.unwrap();
    let (me, token) = grant(&store, "k", LONG).await.unwrap();
    let mut other = connection().await;
    let mut tx = other.begin().await.unwrap();
    raw_sql("SELECT FROM kept.lease_keys FOR KEY SHARE")
        .execute(&mut *tx)
        .await
        .unwrap();
    let renewed = store.renew(&renewal("k", me, token)).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Renewed);
    let error = store.release(&key("k"), me, token).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    tx.rollback().await.unwrap();
    store.release(&key("k"), me, token).await.unwrap();
}

#[tokio::test]
async fn a_request_that_fails_harms_no_other_of_its_batch() {
    let options = options("fails").connections(1);
    let store = options.open().await.unwrap();
    grant(&store, "first", LONG).await.unwrap();
    // Any statement that grants this one key fails.
    let trap = "CREATE FUNCTION fails.trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                IF NEW.key = 'bad' THEN RAISE EXCEPTION 'not this one'; END IF; RETURN NEW; END $$; \
                CREATE TRIGGER trap BEFORE INSERT ON fails.lease_keys FOR EACH ROW EXECUTE \
                FUNCTION fails.trap()";
    raw_sql(AssertSqlSafe(trap))
        .execute(&mut connection().await)
        .await
        .unwrap();
    let names = (0..50).map(|n| match n {
        25 => "bad".to_owned(),
        n => format!("k{n}"),
    });
    let all = names.map(|name| {
        let store = &store;
        async move { (grant(store, &name, LONG).await, name) }
    });
    for (outcome, name) in futures_util::future::join_all(all).await {
        assert_eq!(outcome.is_ok(), name != "bad", "{name}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_resource_that_is_first_admitted_in_an_open_transaction_keeps_nobody_else_waiting() {
    let store = options("first admitted").open().await.unwrap();
    let guard = store.in_transaction();
    let mut db = connection().await;
    let mut tx = db.begin().await.unwrap();
    let resources: Vec<_> = (0..4).map(|n| key(&format!("r{n}"))).collect();
    let token = Token::new(5).unwrap();
    for resource in &resources {
        guard.admit(&mut tx, resource, token).await.unwrap();
    }
    // As many as there are connections.
    let admits = resources.into_iter().map(|resource| {
        let store = store.clone();
        tokio::spawn(async move { store.admit(&resource, token).await })
    });
    let admits: Vec<_> = admits.collect();
    for n in 0..10 {
        tokio::task::yield_now().await;
        let begun = Instant::now();
        grant(&store, &format!("k{n}"), LONG).await.unwrap();
        // The server would let them wait for two and a half.
        assert!(begun.elapsed() < Duration::from_secs(1));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(admits.iter().all(|admit| !admit.is_finished()));
    tx.commit().await.unwrap();
    for admit in admits {
        admit.await.unwrap().unwrap();
    }
}
