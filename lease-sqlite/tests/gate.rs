//! Fenced writes, in the caller's own transaction and through the store.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

mod support;

use lease_core::{AdmitError, Gate, StaleToken, StoreErrorKind};
use lease_sqlite::sqlx::{self, Connection, SqliteConnection};
use lease_sqlite::{SqliteStore, admit, create_gate_table};
use support::*;

fn stale(error: AdmitError) -> StaleToken {
    match error {
        AdmitError::Stale(stale) => stale,
        other => panic!("not stale: {other}"),
    }
}

async fn total(db: &mut SqliteConnection) -> i64 {
    sqlx::query_scalar("SELECT total FROM ledger")
        .fetch_one(db)
        .await
        .unwrap()
}

/// Adds `amount` under `token`, and commits or rolls back.
async fn write(
    db: &mut SqliteConnection,
    number: u64,
    amount: i64,
    commit: bool,
) -> Result<(), AdmitError> {
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await.unwrap();
    admit(&mut tx, &key("ledger"), token(number)).await?;
    sqlx::query("UPDATE ledger SET total = total + ?1")
        .bind(amount)
        .execute(&mut *tx)
        .await
        .unwrap();
    if commit {
        tx.commit().await.unwrap();
    } else {
        tx.rollback().await.unwrap();
    }
    Ok(())
}

#[tokio::test]
async fn a_stale_token_writes_nothing_and_a_rollback_forgets_the_token() {
    let folder = Folder::new();
    let path = folder.file("app.db");
    let (mut one, mut two) = (raw(&path).await, raw(&path).await);
    run(
        &mut one,
        "CREATE TABLE ledger (total INTEGER); INSERT INTO ledger VALUES (0)",
    )
    .await;
    let missing = admit(&mut one, &key("ledger"), token(1)).await.unwrap_err();
    assert!(matches!(missing, AdmitError::Store(e) if e.kind() == StoreErrorKind::Refusing));
    create_gate_table(&mut one).await.unwrap();
    create_gate_table(&mut two).await.unwrap();

    write(&mut one, 5, 1, true).await.unwrap();
    write(&mut two, 5, 10, true).await.unwrap();
    let refused = stale(write(&mut two, 4, 100, true).await.unwrap_err());
    assert_eq!((refused.presented, refused.admitted), (token(4), token(5)));
    assert_eq!(total(&mut one).await, 11);

    write(&mut one, 9, 1_000, false).await.unwrap();
    assert_eq!(total(&mut two).await, 11);
    write(&mut two, 6, 20, true).await.unwrap();
    assert_eq!(total(&mut one).await, 31);

    // Another resource is another memory, and names are bytes.
    for name in ["ledger ", "Ledger", "%", "'"] {
        admit(&mut one, &key(name), token(1)).await.unwrap();
    }
    // Outside of a transaction the token is remembered all the same.
    admit(&mut one, &key("ledger"), token(7)).await.unwrap();
    stale(admit(&mut two, &key("ledger"), token(6)).await.unwrap_err());
}

#[tokio::test]
async fn of_two_racing_connections_none_writes_after_a_newer_one() {
    let folder = Folder::new();
    let path = folder.file("app.db");
    let mut db = raw(&path).await;
    run(
        &mut db,
        "PRAGMA journal_mode = WAL; CREATE TABLE writes (n INTEGER PRIMARY KEY, token INTEGER)",
    )
    .await;
    create_gate_table(&mut db).await.unwrap();
    let writers = (0..4_u64).map(|writer| {
        let path = path.clone();
        tokio::spawn(async move {
            let mut db = raw(&path).await;
            let mut refused = 0;
            for n in 0..50 {
                let number = 1 + n * 4 + (writer + n) % 4;
                let mut tx = db.begin_with("BEGIN IMMEDIATE").await.unwrap();
                match admit(&mut tx, &key("r"), token(number)).await {
                    Ok(()) => {}
                    Err(AdmitError::Stale(_)) => {
                        refused += 1;
                        continue;
                    }
                    Err(other) => panic!("{other}"),
                }
                sqlx::query("INSERT INTO writes (token) VALUES (?1)")
                    .bind(i64::try_from(number).unwrap())
                    .execute(&mut *tx)
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
            }
            refused
        })
    });
    let refused = futures_util::future::join_all(writers).await;
    let refused: i32 = refused.into_iter().map(Result::unwrap).sum();
    let written: Vec<i64> = sqlx::query_scalar("SELECT token FROM writes ORDER BY n")
        .fetch_all(&mut db)
        .await
        .unwrap();
    assert_eq!(written.len() + usize::try_from(refused).unwrap(), 200);
    assert!(written.is_sorted(), "{written:?}");
}

#[tokio::test]
async fn the_stores_own_gate_is_shared_and_durable() {
    let folder = Folder::new();
    let path = folder.file("a.db");
    let ledger = key("ledger");
    let store = SqliteStore::open(&path).await.unwrap();
    store.admit(&ledger, token(5)).await.unwrap();
    store.admit(&ledger, token(5)).await.unwrap();
    drop(store);
    let store = SqliteStore::open(&path).await.unwrap();
    let refused = stale(store.admit(&ledger, token(4)).await.unwrap_err());
    assert_eq!((refused.presented, refused.admitted), (token(4), token(5)));
    // The same memory as that of a fenced write in the same file.
    let mut db = raw(&path).await;
    admit(&mut db, &ledger, token(8)).await.unwrap();
    stale(store.admit(&ledger, token(7)).await.unwrap_err());
    store.admit(&ledger, lease_core::Token::MAX).await.unwrap();
}
