//! The store: a client of one database file.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{
    AcquireOutcome, AcquireRequest, Diagnosis, FenceWhen, Guarantees, Key, KeyState, LeaseBackend,
    Owner, ReleaseOutcome, RenewOutcome, RenewRequest, Session, StoreError, Token, Ttl,
    check_fence,
};
use tokio::sync::{mpsc, oneshot};

use crate::SqliteOptions;
use crate::diagnose;
use crate::errors;
use crate::reader::{Page, Read, Reader, Start};
use crate::request::{Abandon, Asked, Fence, Job, Probe, Release, Request};
use crate::watch::Watchers;
use crate::writer::Writer;

/// How many requests may wait for the writer; more wait with their callers.
const QUEUE: usize = 1_024;

/// Leases in an SQLite file. A clone is the same client, and cheap.
///
/// See the [crate's page](crate) for what it promises.
#[derive(Clone)]
pub struct SqliteStore {
    client: Arc<Client>,
}

struct Client {
    options: SqliteOptions,
    watchers: Arc<Watchers>,
    writer: mpsc::Sender<Box<dyn Job>>,
    reader: mpsc::Sender<Read>,
}

impl SqliteStore {
    /// Opens the database file at `path` with the default
    /// [options](SqliteOptions).
    ///
    /// **Effect.** The file is created if it is missing (its folder is not),
    /// switched to write-ahead logging and given the tables `lease_*`; other
    /// tables in it are left alone. Starts two threads that end with the last
    /// clone of the store.
    ///
    /// # Errors
    /// `InvalidInput` for a path that SQLite cannot take. `Refusing`, with
    /// nothing changed, for a file that is no database, tables of that name
    /// that are not ours, tables of a newer version, a folder that is missing
    /// or not writable. `Unavailable` when another connection holds a lock for
    /// longer than [`SqliteOptions::busy_wait`], or when the operating system
    /// gives no more threads or open files.
    ///
    /// # Cancel safety
    /// Safe; the file may have been created.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        SqliteOptions::new(path).open().await
    }

    /// Opens the database that `url` names; see [`SqliteOptions::from_url`].
    ///
    /// # Errors
    /// `InvalidInput` for any other URL; otherwise as [`open`](Self::open).
    ///
    /// # Cancel safety
    /// As [`open`](Self::open).
    pub async fn connect_url(url: &str) -> Result<Self, StoreError> {
        SqliteOptions::from_url(url)?.open().await
    }

    /// The database file, as an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.client.options.path
    }

    pub(crate) async fn start(options: SqliteOptions) -> Result<Self, StoreError> {
        let watchers = Arc::new(Watchers::default());
        let (writer, writer_jobs) = mpsc::channel(QUEUE);
        let (reader, reader_jobs) = mpsc::channel(QUEUE);
        let (ready, opened) = oneshot::channel();
        let retention = options.tombstone_retention.as_micros();
        let serve_writes = Writer {
            path: options.path.clone(),
            busy_wait: options.busy_wait,
            retention_us: i64::try_from(retention).unwrap_or(i64::MAX),
            watchers: Arc::clone(&watchers),
            jobs: writer_jobs,
            seen_held: HashSet::new(),
        };
        let serve_reads = Reader {
            path: options.path.clone(),
            busy_wait: options.busy_wait,
            poll_interval: options.poll_interval,
            watchers: Arc::clone(&watchers),
            jobs: reader_jobs,
        };
        spawn("lease-sqlite-writer", move || serve_writes.run(ready)).await?;
        opened.await.map_err(|_| stopped())??;
        spawn("lease-sqlite-reader", move || serve_reads.run()).await?;
        Ok(Self {
            client: Arc::new(Client {
                options,
                watchers,
                writer,
                reader,
            }),
        })
    }

    pub(crate) async fn ask<R: Request>(&self, request: R) -> Result<R::Outcome, StoreError>
    where
        R::Outcome: fmt::Debug,
    {
        let (reply, answer) = oneshot::channel();
        let give_up_at = Instant::now() + self.client.options.busy_wait;
        let job = Box::new(Asked::new(request, give_up_at, reply));
        self.client.writer.send(job).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| {
            StoreError::unknown_outcome("the store's writer thread ended during the request")
        })?
    }

    async fn read<T>(
        &self,
        read: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Read,
    ) -> Result<T, StoreError> {
        read_from(&self.client.reader, read).await
    }
}

async fn read_from<T>(
    reader: &mpsc::Sender<Read>,
    read: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Read,
) -> Result<T, StoreError> {
    let (reply, answer) = oneshot::channel();
    reader.send(read(reply)).await.map_err(|_| stopped())?;
    answer.await.map_err(|_| stopped())?
}

/// The items of a page that start with `prefix`, and where the next one starts.
fn listed(
    page: Result<Page, StoreError>,
    prefix: &str,
) -> (Vec<Result<KeyState, StoreError>>, Option<Start>) {
    let page = match page {
        Ok(page) => page,
        Err(failure) => return (vec![Err(failure)], None),
    };
    // Keys come in the order of their bytes, so those with the prefix stand
    // together.
    let within = |state: &KeyState| state.key.as_str().starts_with(prefix);
    let last = page.keys.last().filter(|last| within(last));
    let next = last
        .filter(|_| page.full && page.failure.is_none())
        .map(|last| Start::After(last.key.as_str().to_owned()));
    // A foreign row beyond the prefix is nobody's concern.
    let reached = page.keys.is_empty() || last.is_some();
    let failure = page.failure.clone().filter(|_| reached);
    let keys = page.keys.iter().filter(|state| within(state));
    let items = keys.cloned().map(Ok).chain(failure.map(Err)).collect();
    (items, next)
}

fn stopped() -> StoreError {
    StoreError::unavailable("the store's threads have ended; open the store anew")
}

/// Runs `serve` on a thread and a small runtime of its own, once it is up.
///
/// The runtime is made on that thread, never by the caller: one that is dropped
/// within an asynchronous caller, for want of a thread, panics.
async fn spawn<F: Future<Output = ()>>(
    name: &str,
    serve: impl FnOnce() -> F + Send + 'static,
) -> Result<(), StoreError> {
    let (ready, up) = oneshot::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        match runtime {
            Ok(runtime) => {
                let _ = ready.send(Ok(()));
                runtime.block_on(serve());
            }
            Err(error) => drop(ready.send(Err(errors::no_thread(error)))),
        }
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(errors::no_thread)?;
    up.await.map_err(|_| stopped())?
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("options", &self.client.options)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl LeaseBackend for SqliteStore {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.ask(request.clone()).await
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        let key = key.clone();
        self.ask(Abandon { key, owner }).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        self.ask(request.clone()).await
    }

    /// The writer puts what waits for it into one transaction; at most 512
    /// renewals share one, so that no other operation waits long.
    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        join_all(requests.iter().map(|request| self.ask(request.clone()))).await
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        let key = key.clone();
        self.ask(Release { key, owner, token }).await
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        check_fence(at_least)?;
        let key = key.clone();
        self.ask(Fence {
            key,
            at_least,
            when,
        })
        .await
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        self.read(|reply| Read::Inspect(key.clone(), reply)).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        let (store, prefix) = (self.clone(), prefix.to_owned());
        let first = Some(Start::From(prefix.clone()));
        stream::unfold(first, move |start| {
            let (store, prefix) = (store.clone(), prefix.clone());
            async move {
                let start = start?;
                let page = store.read(|reply| Read::Page(start, reply)).await;
                Some(listed(page, &prefix))
            }
        })
        .flat_map(stream::iter)
        .boxed()
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        let hints = self.client.watchers.subscribe(key);
        self.read(Read::Attend).await?;
        Ok(hints)
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        Ok(Session::NONE)
    }

    fn guarantees(&self) -> Guarantees {
        self.client.options.guarantees()
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        let mut findings = self.read(Read::Examine).await?;
        let started = Instant::now();
        self.ask(Probe).await?;
        findings.push(diagnose::latency(started.elapsed(), ttl));
        Ok(Diagnosis { findings })
    }
}
