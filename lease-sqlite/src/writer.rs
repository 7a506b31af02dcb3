//! The writer: one thread and one connection that make every change.
//!
//! A thread of its own, so that a busy or stopped runtime of the application
//! never leaves a transaction open, and a dropped caller never cuts one short.
//! Requests that come in while a transaction is being committed share the next
//! one, and its one flush to the disk.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lease_core::{Key, StoreError};
use sqlx::query;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{mpsc, oneshot};

use crate::connection::{Connection, Failure, Role, pause, turn_until};
use crate::errors::{Phase, classify, spoils_connection};
use crate::exchange::{look, store};
use crate::request::{Job, Wanted};
use crate::sql;
use crate::table::Table;
use crate::watch::Watchers;

/// The most requests in one transaction.
const BATCH: usize = 512;
/// While the lock is not to be had, every how many tries to look without it.
const LOOK_EVERY: u32 = 8;
/// How many keys that were found held are kept in mind.
const SEEN_HELD: usize = 1_024;
type Batch = Vec<Box<dyn Job>>;

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) path: PathBuf,
    pub(crate) busy_wait: Duration,
    pub(crate) retention_us: i64,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) jobs: mpsc::Receiver<Box<dyn Job>>,
    /// Keys that the last one to ask for them found held.
    pub(crate) seen_held: HashSet<Key>,
}

impl Writer {
    /// Serves until every client is gone.
    pub(crate) async fn run(mut self, ready: oneshot::Sender<Result<(), StoreError>>) {
        let give_up_at = Instant::now() + self.busy_wait;
        let mut connection = match Connection::open(&self.path, Role::Writer, give_up_at).await {
            Ok(connection) => Some(connection),
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        let _ = ready.send(Ok(()));
        while let Some(first) = self.jobs.recv().await {
            self.serve(vec![first], &mut connection).await;
        }
        if let Some(connection) = connection {
            connection.close().await;
        }
    }

    async fn serve(&mut self, mut batch: Batch, connection: &mut Option<Connection>) {
        let started = Instant::now();
        let turn_until = turn_until(batch.first().map_or(started, |job| job.give_up_at()));
        let mut refused = 0_u32;
        let table = loop {
            self.fill(&mut batch);
            self.leave_replaced(connection).await;
            // Those who wait for a held key, and everybody while somebody else
            // writes for long.
            if (self.expects_held(&batch) || refused % LOOK_EVERY == 1)
                && let Some(open) = connection
            {
                self.answer_by_reading(&mut open.db, &mut batch).await;
            }
            if batch.is_empty() {
                return;
            }
            match self.begin(connection, &batch, turn_until).await {
                Ok(table) => break table,
                Err(Failure::Busy(error)) => {
                    refused = refused.saturating_add(1);
                    give_up(&mut batch, started, error);
                    pause().await;
                }
                Err(failure) => return answer(batch, Some(failure.into_error(Duration::ZERO))),
            }
        };
        let Some(open) = connection.as_mut() else {
            return;
        };
        match transact(&mut open.db, &mut batch, table).await {
            Ok(table) => {
                answer(batch, None);
                table.freed.iter().for_each(|key| self.watchers.wake(key));
                self.expect_held(table.held);
            }
            Err(Broken { error, reusable }) => {
                let rolled_back = reusable && rollback(&mut open.db).await;
                if !rolled_back && let Some(spoilt) = connection.take() {
                    spoilt.close().await;
                }
                answer(batch, Some(error));
            }
        }
    }

    /// Whether a key of the batch was found held when it was last asked for;
    /// that is then forgotten.
    fn expects_held(&mut self, batch: &Batch) -> bool {
        if self.seen_held.is_empty() {
            return false;
        }
        let wanted = wanted(batch);
        let expected = wanted.keys.iter().filter(|key| self.seen_held.remove(*key));
        expected.count() > 0
    }

    fn expect_held(&mut self, held: Vec<Key>) {
        // Only a hint for speed: so many waiters have other troubles.
        if self.seen_held.len() > SEEN_HELD {
            self.seen_held.clear();
        }
        self.seen_held.extend(held);
    }

    /// Answers those that would change nothing, by a look that needs no lock:
    /// a waiter whose key is held does not queue behind other writers to learn
    /// it, nor do they behind it.
    async fn answer_by_reading(&mut self, db: &mut SqliteConnection, batch: &mut Batch) {
        let looked = look(db, sql::LOOK, &wanted(batch), self.retention_us).await;
        // What cannot be read now is asked again with the lock held.
        let Ok(mut table) = looked else {
            rollback(db).await;
            return;
        };
        for mut job in std::mem::take(batch) {
            job.decide(&mut table);
            if table.is_unchanged() {
                job.answer(None);
            } else {
                table.undo();
                batch.push(job);
            }
        }
        self.expect_held(table.held);
    }

    /// Takes in what is waiting, and drops what nobody waits for any more.
    fn fill(&mut self, batch: &mut Batch) {
        batch.retain(|job| !job.is_orphaned());
        while batch.len() < BATCH
            && let Ok(job) = self.jobs.try_recv()
        {
            if !job.is_orphaned() {
                batch.push(job);
            }
        }
    }

    /// Drops the connection if its file was deleted or replaced.
    async fn leave_replaced(&self, connection: &mut Option<Connection>) {
        if let Some(open) = connection.take_if(|open| !open.is_of(&self.path)) {
            tracing::warn!(path = ?self.path, "the database file was replaced; opening it anew");
            open.close().await;
        }
    }

    /// Takes the write lock and loads what the batch needs.
    async fn begin(
        &self,
        connection: &mut Option<Connection>,
        batch: &Batch,
        turn_until: Instant,
    ) -> Result<Table, Failure> {
        let open = match connection {
            Some(open) => open,
            None => {
                let open = Connection::try_open(&self.path, Role::Writer, turn_until).await?;
                connection.insert(open)
            }
        };
        let wanted = wanted(batch);
        match look(&mut open.db, sql::LOCK_AND_LOOK, &wanted, self.retention_us).await {
            Ok(table) => Ok(table),
            Err(error) => {
                let failure = Failure::new(Phase::NoEffect, "beginning a transaction", error);
                // Whatever state it is in, a new one is in none.
                if matches!(failure, Failure::Final(_))
                    && let Some(spoilt) = connection.take()
                {
                    spoilt.close().await;
                }
                Err(failure)
            }
        }
    }
}

/// Answers those whose time to wait for the lock is over.
fn give_up(batch: &mut Batch, started: Instant, error: sqlx::Error) {
    let now = Instant::now();
    let (over, waiting): (Batch, Batch) = std::mem::take(batch)
        .into_iter()
        .partition(|job| job.give_up_at() <= now);
    *batch = waiting;
    if !over.is_empty() {
        let error = Failure::Busy(error).into_error(started.elapsed());
        answer(over, Some(error));
    }
}

fn answer(batch: Batch, failure: Option<StoreError>) {
    for job in batch {
        job.answer(failure.clone());
    }
}

/// A transaction that did not come to its end.
struct Broken {
    error: StoreError,
    /// Whether the connection is worth a rollback.
    reusable: bool,
}

impl Broken {
    fn at(phase: Phase, doing: &'static str) -> impl Fn(sqlx::Error) -> Self {
        move |error| Self {
            reusable: phase == Phase::NoEffect && !spoils_connection(&error),
            error: classify(phase, doing, error),
        }
    }
}

fn wanted(batch: &Batch) -> Wanted {
    let mut wanted = Wanted::default();
    batch.iter().for_each(|job| job.want(&mut wanted));
    wanted
}

/// Decides the whole batch inside the open transaction and ends it.
async fn transact(
    db: &mut SqliteConnection,
    batch: &mut Batch,
    mut table: Table,
) -> Result<Table, Broken> {
    batch.iter_mut().for_each(|job| job.decide(&mut table));
    if table.is_unchanged() {
        query("ROLLBACK")
            .execute(db)
            .await
            .map_err(Broken::at(Phase::NoEffect, "ending a look at leases"))?;
        return Ok(table);
    }
    store(db, &table)
        .await
        .map_err(Broken::at(Phase::NoEffect, "writing leases"))?;
    query("COMMIT")
        .execute(db)
        .await
        .map_err(Broken::at(Phase::Commit, "committing"))?;
    Ok(table)
}

async fn rollback(db: &mut SqliteConnection) -> bool {
    query("ROLLBACK").execute(db).await.is_ok()
}
