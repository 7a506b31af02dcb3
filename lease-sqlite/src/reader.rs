//! The reader: one thread and one connection for everything that changes
//! nothing. Under write-ahead logging it waits for no writer and stops none.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lease_core::{Finding, Key, KeyState, StoreError};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Row as _, query, query_scalar};
use tokio::sync::{mpsc, oneshot};

use crate::connection::{Connection, Failure, Role, pause, turn_until};
use crate::diagnose;
use crate::errors::{Phase, spoils_connection};
use crate::json::Array;
use crate::row::KeyRow;
use crate::sql;
use crate::watch::Watchers;

/// How many keys one look lists.
pub(crate) const PAGE: i64 = 256;

/// The longest pause after a failed look for changes.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// Where a page of keys starts.
#[derive(Clone, Debug)]
pub(crate) enum Start {
    From(String),
    After(String),
}

/// Keys in order, and the failure that ended them early.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) keys: Vec<KeyState>,
    pub(crate) failure: Option<StoreError>,
    /// Whether there may be more.
    pub(crate) full: bool,
}

#[derive(Debug)]
pub(crate) enum Read {
    Inspect(Key, Reply<KeyState>),
    Page(Start, Reply<Page>),
    Examine(Reply<Vec<Finding>>),
    /// Somebody started to watch: look for changes from now on.
    Attend(Reply<()>),
}

#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) path: PathBuf,
    pub(crate) busy_wait: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) jobs: mpsc::Receiver<Read>,
}

/// What the reader keeps between two looks.
#[derive(Debug, Default)]
struct State {
    connection: Option<Connection>,
    /// `PRAGMA data_version` of this very connection at the last look.
    seen: Option<i64>,
    /// Failed looks for changes in a row.
    failures: u32,
}

impl Reader {
    /// Serves until every client is gone.
    pub(crate) async fn run(mut self) {
        let mut state = State::default();
        let mut next_look = Instant::now();
        loop {
            let job = if self.watchers.any() {
                tokio::select! {
                    job = self.jobs.recv() => Some(job),
                    () = tokio::time::sleep_until(next_look.into()) => None,
                }
            } else {
                Some(self.jobs.recv().await)
            };
            match job {
                Some(None) => break,
                Some(Some(Read::Attend(reply))) => {
                    // With a version to compare with, the next look sees every
                    // commit from here on: thousands who subscribe at once do
                    // not each pay for a look.
                    if state.seen.is_none() {
                        next_look = Instant::now() + self.look(&mut state).await;
                    }
                    let _ = reply.send(Ok(()));
                }
                Some(Some(job)) => self.serve(job, &mut state).await,
                None => next_look = Instant::now() + self.look(&mut state).await,
            }
        }
        self.watchers.close();
        if let Some(connection) = state.connection {
            connection.close().await;
        }
    }

    async fn serve(&self, job: Read, state: &mut State) {
        match job {
            Read::Inspect(key, reply) => {
                self.answer(reply, state, async |db| inspect(db, &key).await)
                    .await;
            }
            Read::Page(start, reply) => {
                self.answer(reply, state, async |db| page(db, &start).await)
                    .await;
            }
            Read::Examine(reply) => {
                let path = &self.path;
                self.answer(reply, state, async |db| {
                    Ok(Ok(diagnose::examine(db, path).await))
                })
                .await;
            }
            Read::Attend(reply) => {
                let _ = reply.send(Ok(()));
            }
        }
    }

    async fn answer<T>(
        &self,
        reply: Reply<T>,
        state: &mut State,
        read: impl AsyncFn(&mut SqliteConnection) -> Result<Result<T, StoreError>, sqlx::Error>,
    ) {
        let started = Instant::now();
        let turn_until = turn_until(started + self.busy_wait);
        let answer = loop {
            if reply.is_closed() {
                return;
            }
            match self.attempt(state, turn_until, &read).await {
                Ok(answer) => break answer,
                Err(Failure::Busy(_)) if started.elapsed() < self.busy_wait => pause().await,
                Err(failure) => break Err(failure.into_error(started.elapsed())),
            }
        };
        let _ = reply.send(answer);
    }

    async fn attempt<T>(
        &self,
        state: &mut State,
        turn_until: Instant,
        read: impl AsyncFn(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, Failure> {
        if let Some(old) = state.connection.take_if(|open| !open.is_of(&self.path)) {
            old.close().await;
        }
        let open = match &mut state.connection {
            Some(open) => open,
            None => {
                // Versions of two connections cannot be compared.
                state.seen = None;
                let open = Connection::try_open(&self.path, Role::Reader, turn_until).await?;
                state.connection.insert(open)
            }
        };
        match read(&mut open.db).await {
            Ok(answer) => Ok(answer),
            Err(error) => {
                if spoils_connection(&error)
                    && let Some(spoilt) = state.connection.take()
                {
                    spoilt.close().await;
                }
                Err(Failure::new(Phase::NoEffect, "reading leases", error))
            }
        }
    }

    /// Hints at watched keys that are free, if anybody committed since the
    /// last look. Gives how long to wait for the next one.
    async fn look(&self, state: &mut State) -> Duration {
        let turn_until = turn_until(Instant::now() + self.busy_wait);
        let version = self
            .attempt(state, turn_until, async |db| {
                query_scalar::<_, i64>(sql::DATA_VERSION)
                    .fetch_one(db)
                    .await
            })
            .await;
        let looked = match version {
            Ok(version) if state.seen == Some(version) => Ok(()),
            Ok(version) => self
                .hint(state, turn_until)
                .await
                .map(|()| state.seen = Some(version)),
            Err(failure) => Err(failure),
        };
        match looked {
            Ok(()) => {
                state.failures = 0;
                self.poll_interval
            }
            // What is missed now is seen at the next look: `seen` stays.
            Err(failure) => {
                let error = failure.into_error(Duration::ZERO);
                if state.failures == 0 {
                    tracing::warn!(%error, "looking for freed keys failed; waiters fall back to their timers");
                }
                state.failures = state.failures.saturating_add(1);
                let longer = 1_u32 << state.failures.min(10);
                (self.poll_interval * longer).min(LONGEST_PAUSE.max(self.poll_interval))
            }
        }
    }

    async fn hint(&self, state: &mut State, turn_until: Instant) -> Result<(), Failure> {
        let watched = self.watchers.watched();
        let mut keys = Array::new();
        watched.iter().for_each(|key| {
            keys.text(key.as_str());
        });
        let keys = keys.finish();
        let free: Vec<String> = self
            .attempt(state, turn_until, async |db| {
                query_scalar(sql::FREE_KEYS)
                    .bind(keys.as_str())
                    .fetch_all(db)
                    .await
            })
            .await?;
        let free: HashSet<&str> = free.iter().map(String::as_str).collect();
        for key in watched {
            if free.contains(key.as_str()) {
                self.watchers.wake(&key);
            }
        }
        Ok(())
    }
}

async fn inspect(
    db: &mut SqliteConnection,
    key: &Key,
) -> Result<Result<KeyState, StoreError>, sqlx::Error> {
    let row = query(sql::INSPECT).bind(key.as_str()).fetch_one(db).await?;
    if row.try_get::<Option<String>, _>("key")?.is_none() {
        return Ok(Ok(KeyState {
            key: key.clone(),
            high_water: None,
            holder: None,
            blocked_for: None,
        }));
    }
    let now_us = row.try_get("now_us")?;
    Ok(KeyRow::read(key.as_str(), &row).map(|read| read.state(key, now_us)))
}

async fn page(
    db: &mut SqliteConnection,
    start: &Start,
) -> Result<Result<Page, StoreError>, sqlx::Error> {
    let (sql, at) = match start {
        Start::From(at) => (sql::PAGE_FROM, at),
        Start::After(at) => (sql::PAGE_AFTER, at),
    };
    let rows = query(sql)
        .bind(at.as_str())
        .bind(PAGE)
        .fetch_all(db)
        .await?;
    let mut page = Page {
        full: i64::try_from(rows.len()) == Ok(PAGE),
        ..Page::default()
    };
    for row in &rows {
        match state_of(row) {
            Ok(state) => page.keys.push(state),
            Err(failure) => {
                page.failure = Some(failure);
                break;
            }
        }
    }
    Ok(Ok(page))
}

fn state_of(row: &SqliteRow) -> Result<KeyState, StoreError> {
    let foreign = |what: String| {
        StoreError::refusing(format!(
            "the table lease_keys has a row whose key is none: {what}; it was left as it is, \
             delete it"
        ))
    };
    let text: String = row.try_get("key").map_err(|e| foreign(e.to_string()))?;
    let key = Key::new(&text).map_err(|e| foreign(format!("{text:?}: {e}")))?;
    let now_us = row.try_get("now_us").map_err(|e| foreign(e.to_string()))?;
    Ok(KeyRow::read(&text, row)?.state(&key, now_us))
}
