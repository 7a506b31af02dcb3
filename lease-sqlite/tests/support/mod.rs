//! What several test files need.
// Each test file uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lease_core::{
    AcquireOutcome, AcquireRequest, Granted, Holder, Key, KeyState, Label, LeaseBackend, Owner,
    RenewRequest, Token, TokenRule, Ttl,
};
use lease_sqlite::SqliteStore;
use lease_sqlite::sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use lease_sqlite::sqlx::{self, ConnectOptions};

/// A folder that goes with the value: in memory where the system has a place
/// for that, since a disk that others keep busy may stall a flush for longer
/// than any time limit here. `LEASE_SQLITE_TEST_DIR` names another place.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        let name = format!("lease-sqlite-{}", Owner::random().unwrap());
        let memory = Path::new("/dev/shm");
        let place = match std::env::var_os("LEASE_SQLITE_TEST_DIR") {
            Some(place) => PathBuf::from(place),
            None if memory.is_dir() => memory.to_owned(),
            None => std::env::temp_dir(),
        };
        let path = place.join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn key(key: &str) -> Key {
    Key::new(key).unwrap()
}

pub fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

pub fn ttl_ms(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

pub fn request(name: &str, ms: u64) -> AcquireRequest {
    AcquireRequest {
        key: key(name),
        owner: Owner::random().unwrap(),
        ttl: ttl_ms(ms),
        label: Label::new("test").unwrap(),
        rule: TokenRule::NEXT,
        waits: None,
    }
}

pub fn renewal(request: &AcquireRequest, token: Token) -> RenewRequest {
    RenewRequest {
        key: request.key.clone(),
        owner: request.owner,
        token,
        ttl: request.ttl,
    }
}

pub fn granted(outcome: AcquireOutcome) -> Granted {
    match outcome {
        AcquireOutcome::Granted(granted) => granted,
        other => panic!("not granted: {other:?}"),
    }
}

pub fn held(outcome: AcquireOutcome) -> Holder {
    match outcome {
        AcquireOutcome::Held(holder) => holder,
        other => panic!("not held: {other:?}"),
    }
}

/// Looks until `wanted` holds of the key, and fails after ten seconds.
pub async fn until(
    store: &SqliteStore,
    name: &str,
    wanted: impl Fn(&KeyState) -> bool,
) -> KeyState {
    let started = Instant::now();
    loop {
        let state = store.inspect(&key(name)).await.unwrap();
        if wanted(&state) {
            return state;
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{state:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// The database seen by its own client, apart from the store.
pub async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .connect()
        .await
        .unwrap()
}

pub async fn run(db: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(db).await.unwrap();
}
