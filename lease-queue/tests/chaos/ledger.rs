//! The resource that the items' work changes: an SQLite file, whose gate admits a token
//! in the transaction that writes, and which keeps a journal of it.

use std::path::Path;
use std::time::Duration;

use lease_core::{AdmitError, Key, Token};
use lease_sqlite::sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous,
};
use lease_sqlite::sqlx::{self, Connection as _, query, query_as};
use lease_sqlite::{admit, create_gate_table};
use tokio::sync::{mpsc, oneshot};

use crate::check::Write;
use crate::record::Work;

/// A process may stand still within a transaction.
const BUSY: Duration = Duration::from_secs(60);

/// No constraint keeps an effect from being there twice, or in any order.
const TABLES: &str = "
    CREATE TABLE journal (
        place INTEGER PRIMARY KEY AUTOINCREMENT,
        grp INTEGER NOT NULL,
        number INTEGER NOT NULL,
        token INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        worker INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE effect (grp INTEGER NOT NULL, number INTEGER NOT NULL) STRICT;
    CREATE INDEX effect_of ON effect (grp, number);";

type Job = (Work, Writer, oneshot::Sender<Written>);

/// Writes from a thread of its own: a worker that stands still is not within a
/// transaction then, or all others would wait for it. (A process may be, all the same.)
#[derive(Clone, Debug)]
pub(crate) struct Ledger(mpsc::UnboundedSender<Job>);

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub(crate) worker: u32,
    pub(crate) token: Token,
    pub(crate) attempt: u32,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Now, or by an earlier attempt whose completion did not come about.
    Applied,
    /// A later owner's token was admitted before.
    Refused,
}

impl Ledger {
    /// Without its fence it takes every write, to show that the fence is needed.
    pub(crate) fn open(path: &Path, fenced: bool) -> Self {
        let (jobs, mut todo) = mpsc::unbounded_channel::<Job>();
        let path = path.to_owned();
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(async {
                let mut db = connected(&path).await;
                while let Some((work, by, done)) = todo.recv().await {
                    let _ = done.send(write(&mut db, work, by, fenced).await);
                }
            });
        });
        Self(jobs)
    }

    pub(crate) async fn write(&self, work: Work, by: Writer) -> Written {
        let (done, written) = oneshot::channel();
        self.0.send((work, by, done)).unwrap();
        written.await.unwrap()
    }
}

pub(crate) async fn make(path: &Path) {
    let mut db = connected(path).await;
    create_gate_table(&mut db).await.unwrap();
    sqlx::raw_sql(TABLES).execute(&mut db).await.unwrap();
}

async fn connected(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        // Processes are killed, and not the machine.
        .synchronous(SqliteSynchronous::Off)
        .busy_timeout(BUSY);
    SqliteConnection::connect_with(&options).await.unwrap()
}

async fn write(db: &mut SqliteConnection, work: Work, by: Writer, fenced: bool) -> Written {
    let mut tx = db.begin_with("BEGIN IMMEDIATE").await.unwrap();
    if fenced {
        let resource = Key::new(format!("group {}", work.group)).unwrap();
        match admit(&mut tx, &resource, by.token).await {
            Ok(()) => {}
            Err(AdmitError::Stale(_)) => {
                tx.rollback().await.unwrap();
                return Written::Refused;
            }
            Err(error) => panic!("{error}"),
        }
    }
    let (group, number) = (i64::try_from(work.group).unwrap(), i64::from(work.number));
    query("INSERT INTO journal (grp, number, token, attempt, worker) VALUES (?, ?, ?, ?, ?)")
        .bind(group)
        .bind(number)
        .bind(i64::try_from(by.token.get()).unwrap())
        .bind(i64::from(by.attempt))
        .bind(i64::from(by.worker))
        .execute(&mut *tx)
        .await
        .unwrap();
    // It may be there, of an attempt whose worker did not come to complete it.
    query(
        "INSERT INTO effect SELECT ?1, ?2 WHERE NOT EXISTS ( \
         SELECT 1 FROM effect WHERE grp = ?1 AND number = ?2)",
    )
    .bind(group)
    .bind(number)
    .execute(&mut *tx)
    .await
    .unwrap();
    tx.commit().await.unwrap();
    Written::Applied
}

/// Every admitted write, in order.
pub(crate) async fn journal(path: &Path) -> Vec<Write> {
    let rows: Vec<(i64, i64, i64, i64, i64)> =
        query_as("SELECT grp, number, token, attempt, worker FROM journal ORDER BY place")
            .fetch_all(&mut connected(path).await)
            .await
            .unwrap();
    rows.into_iter().map(Write::from).collect()
}

pub(crate) async fn effects(path: &Path) -> Vec<Work> {
    let rows: Vec<(i64, i64)> = query_as("SELECT grp, number FROM effect")
        .fetch_all(&mut connected(path).await)
        .await
        .unwrap();
    let work = |(group, number)| Work {
        group: usize::try_from(group).unwrap(),
        number: u32::try_from(number).unwrap(),
    };
    rows.into_iter().map(work).collect()
}
