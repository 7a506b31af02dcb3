//! Files and rows that the store did not write.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use lease_core::{FenceWhen, Gate, LeaseBackend, StoreError, StoreErrorKind};
use lease_sqlite::SqliteStore;
use lease_sqlite::sqlx;
use support::*;

fn refusing<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    error.to_string()
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_alone() {
    let folder = Folder::new();
    let path = folder.file("notes.txt");
    let notes = "not a database ".repeat(1_000);
    std::fs::write(&path, &notes).unwrap();
    let words = refusing(SqliteStore::open(&path).await);
    assert!(words.contains("not an SQLite database"), "{words}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), notes);

    let words = refusing(SqliteStore::open(folder.path()).await);
    assert!(words.contains("is a folder"), "{words}");
    let words = refusing(SqliteStore::open(folder.file("no/such/folder.db")).await);
    assert!(words.contains("does not exist; create it"), "{words}");
    for bad in ["", ":memory:", "a\0b"] {
        let error = SqliteStore::open(bad).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::InvalidInput, "{error}");
    }
    let error = SqliteStore::connect_url("sqlite:a.db?mode=ro")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::InvalidInput, "{error}");
}

#[tokio::test]
async fn foreign_tables_are_refused_and_left_alone() {
    let folder = Folder::new();
    for (n, sql) in [
        "CREATE TABLE lease_keys (id INTEGER, tenant TEXT); INSERT INTO lease_keys VALUES (7, 'x')",
        "CREATE TABLE Lease_Schema (v TEXT); INSERT INTO lease_schema VALUES ('x')",
        "CREATE VIEW lease_gate AS SELECT 'x' AS resource, 1 AS token",
        "CREATE TABLE lease_schema (only INTEGER, version INTEGER)",
        "PRAGMA encoding = 'UTF-16'; CREATE TABLE app (x)",
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.file(&format!("{n}.db"));
        let mut db = raw(&path).await;
        run(&mut db, sql).await;
        let before = std::fs::read(&path).unwrap();
        let words = refusing(SqliteStore::open(&path).await);
        assert!(words.contains("nothing was changed"), "{words}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "{sql}");
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let folder = Folder::new();
    let path = folder.file("a.db");
    drop(SqliteStore::open(&path).await.unwrap());
    run(&mut raw(&path).await, "UPDATE lease_schema SET version = 2").await;
    let words = refusing(SqliteStore::open(&path).await);
    assert!(
        words.contains("version 2") && words.contains("upgrade"),
        "{words}"
    );
}

#[tokio::test]
async fn an_applications_database_is_shared_with_its_tables() {
    let folder = Folder::new();
    let path = folder.file("app.db");
    let mut db = raw(&path).await;
    run(
        &mut db,
        "CREATE TABLE app (x); INSERT INTO app VALUES (1); PRAGMA user_version = 42",
    )
    .await;
    lease_sqlite::create_gate_table(&mut db).await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    granted(store.acquire(&request("k", 60_000)).await.unwrap());
    let (x, version): (i64, i64) =
        sqlx::query_as("SELECT x, (SELECT user_version FROM pragma_user_version) FROM app")
            .fetch_one(&mut db)
            .await
            .unwrap();
    assert_eq!((x, version), (1, 42));
}

#[tokio::test]
async fn garbage_in_a_row_is_a_typed_error_that_names_the_key() {
    let folder = Folder::new();
    let path = folder.file("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let mut db = raw(&path).await;
    for sql in [
        "UPDATE lease_keys SET mark = 0",
        "UPDATE lease_keys SET mark = -1",
        "UPDATE lease_keys SET mark = 9007199254740992",
        "UPDATE lease_keys SET mark = 9223372036854775807",
        "UPDATE lease_keys SET mark = 1",
        "UPDATE lease_keys SET owner = NULL",
        "UPDATE lease_keys SET owner = x'00'",
        "UPDATE lease_keys SET token = NULL",
        "UPDATE lease_keys SET token = 0",
        "UPDATE lease_keys SET label = CAST(x'ff' AS TEXT)",
        "UPDATE lease_keys SET label = char(7)",
        "UPDATE lease_keys SET expires_us = NULL",
        "UPDATE lease_keys SET standing = 9",
    ] {
        run(&mut db, "DELETE FROM lease_keys").await;
        let mine = request("the key", 60_000);
        let token = granted(store.acquire(&mine).await.unwrap()).token;
        run(&mut db, sql).await;
        let before = dump(&mut db).await;
        let next = token.next().unwrap();
        // Others are served in the same transactions.
        let (outcome, good) = futures_util::future::join(
            async { refusing(store.acquire(&request("the key", 60_000)).await) },
            store.acquire(&request("another key", 60_000)),
        )
        .await;
        granted(good.unwrap());
        run(&mut db, "DELETE FROM lease_keys WHERE key = 'another key'").await;
        let mut errors = vec![outcome];
        errors.push(refusing(store.renew(&renewal(&mine, token)).await));
        errors.push(refusing(store.release(&mine.key, mine.owner, token).await));
        errors.push(refusing(store.abandon(&mine.key, mine.owner).await));
        errors.push(refusing(
            store.fence(&mine.key, next, FenceWhen::AtExpiry).await,
        ));
        errors.push(refusing(store.inspect(&mine.key).await));
        let listed: Vec<_> = store.list("").collect().await;
        assert_eq!(listed.len(), 1);
        errors.extend(listed.into_iter().map(refusing));
        for error in errors {
            assert!(error.contains("\"the key\""), "{sql}: {error}");
        }
        assert_eq!(dump(&mut db).await, before, "{sql}");
    }
    let found = store.diagnose(ttl_ms(60_000)).await.unwrap();
    assert_eq!(found.worst(), lease_core::Severity::Critical);
    run(&mut db, "UPDATE lease_keys SET key = ''").await;
    let listed: Vec<_> = store.list("").collect().await;
    refusing(listed.into_iter().next().unwrap());
}

async fn dump(db: &mut sqlx::SqliteConnection) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT concat_ws('|', quote(key), mark, quote(owner), quote(token), quote(CAST(label AS BLOB)), \
         quote(granted_us), quote(expires_us), quote(standing)) FROM lease_keys ORDER BY key",
    )
    .fetch_all(db)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_row_that_says_for_ever_does_not_overflow() {
    let folder = Folder::new();
    let path = folder.file("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let mine = request("k", 60_000);
    let token = granted(store.acquire(&mine).await.unwrap()).token;
    let mut db = raw(&path).await;
    for sql in [
        "UPDATE lease_keys SET expires_us = 9223372036854775807, granted_us = -9223372036854775808",
        "UPDATE lease_keys SET expires_us = -9223372036854775808, granted_us = 9223372036854775807",
    ] {
        run(&mut db, sql).await;
        store.inspect(&mine.key).await.unwrap();
        store.renew(&renewal(&mine, token)).await.unwrap();
        store.acquire(&request("k", 60_000)).await.unwrap();
        let next = token.next().unwrap();
        store
            .fence(&mine.key, next, FenceWhen::AtExpiry)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_missing_table_and_a_foreign_trigger_are_refusals() {
    let folder = Folder::new();
    let path = folder.file("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let mut db = raw(&path).await;
    run(
        &mut db,
        "CREATE TRIGGER no BEFORE INSERT ON lease_keys BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    .await;
    refusing(store.acquire(&request("k", 60_000)).await);
    run(&mut db, "DROP TRIGGER no").await;
    granted(store.acquire(&request("k", 60_000)).await.unwrap());
    run(&mut db, "DROP TABLE lease_tombstones").await;
    refusing(store.acquire(&request("other", 60_000)).await);
    // A record deleted behind the store's back frees its key.
    let store = SqliteStore::open(&path).await.unwrap();
    held(store.acquire(&request("k", 60_000)).await.unwrap());
    let mut hints = store.watch(&key("k")).await.unwrap();
    run(&mut db, "DELETE FROM lease_keys").await;
    let hint = tokio::time::timeout(std::time::Duration::from_secs(5), hints.next());
    assert_eq!(hint.await.unwrap(), Some(()));
    granted(store.acquire(&request("k", 60_000)).await.unwrap());
}

#[tokio::test]
async fn a_gate_with_garbage_admits_nobody() {
    let folder = Folder::new();
    let path = folder.file("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let mut db = raw(&path).await;
    let ledger = key("ledger");
    for sql in [
        "INSERT OR REPLACE INTO lease_gate VALUES ('ledger', 0)",
        "INSERT OR REPLACE INTO lease_gate VALUES ('ledger', -1)",
        "INSERT OR REPLACE INTO lease_gate VALUES ('ledger', 9223372036854775807)",
    ] {
        run(&mut db, sql).await;
        for error in [
            store.admit(&ledger, token(5)).await.unwrap_err(),
            lease_sqlite::admit(&mut db, &ledger, token(5))
                .await
                .unwrap_err(),
        ] {
            assert!(error.to_string().contains("\"ledger\""), "{sql}: {error}");
            assert!(matches!(error, lease_core::AdmitError::Store(_)), "{error}");
        }
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_path_that_is_no_regular_file_is_refused_at_once_and_left_alone() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new();
    let path = |name: &str| folder.file(name);
    let made = std::process::Command::new("mkfifo")
        .args([path("pipe"), path("piped.db-wal")])
        .status();
    assert!(made.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
    symlink("/dev/null", path("link-to-null")).unwrap();
    symlink("pipe", path("link-to-pipe")).unwrap();
    symlink("circle", path("circle")).unwrap();
    std::fs::write(path("piped.db"), "").unwrap();
    symlink("piped.db", path("link-to-piped.db")).unwrap();
    std::fs::write(path("file"), "").unwrap();
    let long = folder.file(&"n".repeat(300));
    let before = names(&folder);
    let asked = std::time::Instant::now();
    for (place, words) in [
        (PathBuf::from("/dev/null"), "name a regular file"),
        (PathBuf::from("//dev/zero"), "name a regular file"),
        (path("pipe"), "name a regular file"),
        (path("socket"), "name a regular file"),
        (path("link-to-null"), "name a regular file"),
        (path("link-to-pipe"), "name a regular file"),
        (path("piped.db"), "is no regular file"),
        (path("link-to-piped.db"), "is no regular file"),
        (path("circle"), "symbolic links"),
        (path("file/x.db"), "is no folder"),
        (path("missing/x.db"), "does not exist"),
        (folder.path().to_owned(), "is a folder"),
        (long, "too long"),
    ] {
        let refused = refusing(SqliteStore::open(&place).await);
        assert!(refused.contains(words), "{place:?}: {refused}");
    }
    refusing(SqliteStore::connect_url("sqlite:////dev/null").await);
    assert!(asked.elapsed() < std::time::Duration::from_secs(2));
    assert_eq!(names(&folder), before);
    for left in ["/dev/null-journal", "/dev/null-wal", "/dev/zero-journal"] {
        assert!(!Path::new(left).exists(), "{left}");
    }

    // Links to a regular file, or to one that is to be made, lead to it.
    symlink("real.db", path("link.db")).unwrap();
    for _ in 0..2 {
        let store = SqliteStore::open(path("link.db")).await.unwrap();
        store.acquire(&request("k", 60_000)).await.unwrap();
        store.inspect(&key("k")).await.unwrap();
    }
    let direct = SqliteStore::open(path("real.db")).await.unwrap();
    held(direct.acquire(&request("k", 60_000)).await.unwrap());
}

#[cfg(unix)]
fn names(folder: &Folder) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort_unstable();
    names
}
