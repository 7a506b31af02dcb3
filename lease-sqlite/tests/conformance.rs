//! The shared suite, on files of its own for each case.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_conformance::{Fixture, FixtureError, Restart, Store};
use lease_core::{
    AcquireOutcome, AcquireRequest, Diagnosis, FenceWhen, Guarantees, Key, KeyState, LeaseBackend,
    Owner, ReleaseOutcome, RenewOutcome, RenewRequest, Session, StoreError, Token, Ttl,
};
use lease_sqlite::{SqliteOptions, SqliteStore};
use support::Folder;

fn main() -> ExitCode {
    lease_conformance::main("sqlite", Files)
}

const RETENTION: Duration = Duration::from_secs(10);
/// The machine that runs all cases at once may be slower than a real one.
const BUSY_WAIT: Duration = Duration::from_secs(30);

struct Files;

#[async_trait]
impl Fixture for Files {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        let folder = Folder::new();
        Ok(Box::new(File {
            path: folder.file("leases.db"),
            _folder: folder,
            clients: Mutex::default(),
        }))
    }
}

/// One database file and everybody who has it open.
struct File {
    path: PathBuf,
    clients: Mutex<Vec<Arc<Client>>>,
    _folder: Folder,
}

impl File {
    async fn connect(&self) -> Result<SqliteStore, StoreError> {
        SqliteOptions::new(&self.path)
            .tombstone_retention(RETENTION)
            .busy_wait(BUSY_WAIT)
            .open()
            .await
    }
}

#[async_trait]
impl Store for File {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let client = Arc::new(Client(RwLock::new(self.connect().await?)));
        self.clients.lock().unwrap().push(Arc::clone(&client));
        Ok(client)
    }

    fn tombstone_retention(&self) -> Option<Duration> {
        Some(RETENTION)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }
}

#[async_trait]
impl Restart for File {
    /// An embedded store restarts when the last one who has it open has gone.
    /// (That it also survives `kill -9` of all is in `processes.rs`.)
    async fn restart(&self) -> Result<(), FixtureError> {
        let clients = self.clients.lock().unwrap().clone();
        let nowhere = Folder::new();
        let elsewhere = SqliteStore::open(nowhere.file("none.db")).await?;
        for client in &clients {
            *client.0.write().unwrap() = elsewhere.clone();
        }
        // The last connection to close removes the write-ahead log; but two that
        // close at once each take the other for one that stays.
        let log = self.path.with_extension("db-wal");
        while log.exists() && is_open(&self.path) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for client in &clients {
            let store = self.connect().await?;
            *client.0.write().unwrap() = store;
        }
        Ok(())
    }
}

/// Whether this process has the file open, where that can be seen.
fn is_open(path: &Path) -> bool {
    let (Ok(path), Ok(open)) = (path.canonicalize(), fs::read_dir("/proc/self/fd")) else {
        return true;
    };
    open.flatten()
        .any(|file| fs::read_link(file.path()).is_ok_and(|at| at == path))
}

/// A client that outlives a restart, as a process with a reconnecting driver
/// would.
#[derive(Debug)]
struct Client(RwLock<SqliteStore>);

impl Client {
    fn store(&self) -> SqliteStore {
        self.0.read().unwrap().clone()
    }
}

#[async_trait]
impl LeaseBackend for Client {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.store().acquire(request).await
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        self.store().abandon(key, owner).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        self.store().renew(request).await
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        self.store().renew_many(requests).await
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        self.store().release(key, owner, token).await
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        self.store().fence(key, at_least, when).await
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        self.store().inspect(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.store().list(prefix)
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        self.store().watch(key).await
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        self.store().ping().await
    }

    fn guarantees(&self) -> Guarantees {
        self.store().guarantees()
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.store().diagnose(ttl).await
    }
}
