//! The writer: one thread and one connection that make every change.
//!
//! A thread of its own, so that a busy or stopped runtime of the application
//! never leaves a transaction open, and a dropped caller never cuts one short.
//! Requests that come in while a transaction is being committed share the next
//! one, and its one flush to the disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lease_core::{Key, StoreError, Token};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Row as _, query, query_scalar};
use tokio::sync::{mpsc, oneshot};

use crate::connection::{Connection, Failure, Role, pause};
use crate::errors::{Phase, classify, spoils_connection};
use crate::json::Array;
use crate::request::{Job, Wanted};
use crate::row::{KeyRow, owner, token};
use crate::sql;
use crate::table::{Buried, Slot, Table, Tombstone};
use crate::watch::Watchers;

/// The most requests in one transaction.
const BATCH: usize = 512;
/// Tombstones forgotten for each one added: more than one, so that they do not
/// pile up, and few, so that no transaction is slow.
const PURGE_PER_TOMBSTONE: i64 = 4;

type Batch = Vec<Box<dyn Job>>;

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) path: PathBuf,
    pub(crate) busy_wait: Duration,
    pub(crate) retention_us: i64,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) jobs: mpsc::Receiver<Box<dyn Job>>,
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
        loop {
            self.fill(&mut batch);
            if batch.is_empty() {
                return;
            }
            match self.begin(connection).await {
                Ok(()) => break,
                Err(Failure::Busy(error)) => {
                    give_up(&mut batch, started, error);
                    pause().await;
                }
                Err(failure) => return answer(batch, Some(failure.into_error(Duration::ZERO))),
            }
        }
        // Those that came while we waited for the lock.
        self.fill(&mut batch);
        let Some(open) = connection.as_mut() else {
            return;
        };
        match transact(&mut open.db, &mut batch, self.retention_us).await {
            Ok(freed) => {
                answer(batch, None);
                freed.iter().for_each(|key| self.watchers.wake(key));
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

    async fn begin(&self, connection: &mut Option<Connection>) -> Result<(), Failure> {
        if let Some(open) = connection.take_if(|open| !open.is_of(&self.path)) {
            tracing::warn!(path = ?self.path, "the database file was replaced; opening it anew");
            open.close().await;
        }
        let open = match connection {
            Some(open) => open,
            None => connection.insert(Connection::try_open(&self.path, Role::Writer).await?),
        };
        match query("BEGIN IMMEDIATE").execute(&mut open.db).await {
            Ok(_) => Ok(()),
            Err(error) => {
                if spoils_connection(&error)
                    && let Some(spoilt) = connection.take()
                {
                    spoilt.close().await;
                }
                Err(Failure::new(
                    Phase::NoEffect,
                    "beginning a transaction",
                    error,
                ))
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

/// Decides the whole batch inside the open transaction and ends it. Gives the
/// keys that became free.
async fn transact(
    db: &mut SqliteConnection,
    batch: &mut Batch,
    retention_us: i64,
) -> Result<Vec<Key>, Broken> {
    let mut wanted = Wanted::default();
    batch.iter().for_each(|job| job.want(&mut wanted));
    let mut table = load(db, &wanted, retention_us)
        .await
        .map_err(Broken::at(Phase::NoEffect, "reading leases"))?;
    batch.iter_mut().for_each(|job| job.decide(&mut table));
    let changed = store(db, &table, wanted.probe)
        .await
        .map_err(Broken::at(Phase::NoEffect, "writing leases"))?;
    if changed {
        query("COMMIT")
            .execute(db)
            .await
            .map_err(Broken::at(Phase::Commit, "committing"))?;
    } else {
        query("ROLLBACK")
            .execute(db)
            .await
            .map_err(Broken::at(Phase::NoEffect, "ending a look at leases"))?;
    }
    Ok(table.freed)
}

async fn rollback(db: &mut SqliteConnection) -> bool {
    query("ROLLBACK").execute(db).await.is_ok()
}

async fn load(
    db: &mut SqliteConnection,
    wanted: &Wanted,
    retention_us: i64,
) -> Result<Table, sqlx::Error> {
    // The first statement after the lock is held: no wait makes it stale.
    let mut table = Table {
        now_us: query_scalar(sql::NOW).fetch_one(&mut *db).await?,
        retention_us,
        ..Table::default()
    };
    let mut keys = Array::new();
    wanted.keys.iter().for_each(|key| {
        keys.text(key.as_str());
    });
    for row in rows(db, sql::LOAD_KEYS, keys).await? {
        let key: String = row.try_get("key")?;
        // It was asked for by its bytes, so it is a key.
        if let Ok(name) = Key::new(&key) {
            table
                .keys
                .insert(name, Slot::loaded(KeyRow::read(&key, &row)));
        }
    }
    let mut owners = Array::new();
    wanted.owners.iter().for_each(|owner| {
        owners.text(&owner.to_string());
    });
    for row in rows(db, sql::LOAD_TOMBSTONES, owners).await? {
        let bytes: Vec<u8> = row.try_get("owner")?;
        if let Ok(owner) = owner(bytes) {
            table
                .tombstones
                .insert(owner, Slot::loaded(tombstone(&row)));
        }
    }
    let mut resources = Array::new();
    wanted.resources.iter().for_each(|resource| {
        resources.text(resource.as_str());
    });
    for row in rows(db, sql::LOAD_GATE, resources).await? {
        let resource: String = row.try_get("resource")?;
        if let Ok(name) = Key::new(&resource) {
            table
                .gate
                .insert(name, Slot::loaded(admitted(&resource, &row)));
        }
    }
    Ok(table)
}

async fn rows(
    db: &mut SqliteConnection,
    sql: &'static str,
    array: Array,
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    if array.is_empty() {
        return Ok(Vec::new());
    }
    query(sql).bind(array.finish()).fetch_all(db).await
}

fn tombstone(row: &SqliteRow) -> Result<Tombstone, StoreError> {
    let foreign = |what: String| {
        StoreError::refusing(format!(
            "a row of the table lease_tombstones holds what this store does not write: {what}; \
             it was left as it is, repair or delete it"
        ))
    };
    let number = |column| {
        row.try_get::<i64, _>(column)
            .map_err(|e| foreign(e.to_string()))
    };
    let buried = match number("reason")? {
        1 => Buried::Abandoned,
        2 => Buried::Revoked,
        other => return Err(foreign(format!("reason is {other}"))),
    };
    Ok(Tombstone {
        buried,
        until_us: number("until_us")?,
    })
}

fn admitted(resource: &str, row: &SqliteRow) -> Result<Token, StoreError> {
    row.try_get::<i64, _>("token")
        .map_err(|e| e.to_string())
        .and_then(|number| token("token", number))
        .map_err(|what| crate::gate::foreign(resource, &what))
}

/// Writes what was decided. Gives whether there was anything to write.
async fn store(db: &mut SqliteConnection, table: &Table, probe: bool) -> Result<bool, sqlx::Error> {
    let mut keys = Array::new();
    for (key, row) in table.changed_keys() {
        keys.array(key_values(key, row));
    }
    let (mut tombstones, mut added) = (Array::new(), 0);
    for (owner, tombstone) in table.changed_tombstones() {
        added += 1;
        let mut values = Array::new();
        values
            .text(&owner.to_string())
            .number(match tombstone.buried {
                Buried::Abandoned => 1,
                Buried::Revoked => 2,
            })
            .number(tombstone.until_us);
        tombstones.array(values);
    }
    let mut gate = Array::new();
    for (resource, token) in table.changed_gate() {
        let mut values = Array::new();
        values.text(resource.as_str()).number(stored(*token));
        gate.array(values);
    }
    let mut changed = false;
    if !tombstones.is_empty() {
        query(sql::PURGE_TOMBSTONES)
            .bind(table.now_us)
            .bind(PURGE_PER_TOMBSTONE * added)
            .execute(&mut *db)
            .await?;
    }
    for (sql, array) in [
        (sql::STORE_KEYS, keys),
        (sql::STORE_TOMBSTONES, tombstones),
        (sql::STORE_GATE, gate),
    ] {
        if !array.is_empty() {
            query(sql).bind(array.finish()).execute(&mut *db).await?;
            changed = true;
        }
    }
    if probe {
        query(sql::PROBE).execute(db).await?;
        changed = true;
    }
    Ok(changed)
}

fn key_values(key: &Key, row: &KeyRow) -> Array {
    let mut values = Array::new();
    values.text(key.as_str()).number(stored(row.mark));
    match &row.grant {
        Some(grant) => values
            .text(&grant.owner.to_string())
            .number(stored(grant.token))
            .text(grant.label.as_str())
            .number(grant.granted_us)
            .number(grant.expires_us)
            .number(grant.standing.code()),
        None => values.null().null().null().null().null().null(),
    };
    values
}

/// A token as the database's 64-bit integer, which all tokens fit.
fn stored(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}
