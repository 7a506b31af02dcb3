#![doc = include_str!("../docs/postgres.md")]

mod claim;
mod gathered;
mod in_transaction;
mod layout;
mod look;
mod row;
mod settle;
mod store;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lease_core::{InvalidInput, StoreError, WaiterOrder};
pub use lease_postgres::PostgresOptions;
use lease_postgres::parts::{self, Client, Over, column};
use lease_postgres::sqlx::{SqlStr, query};

use crate::gather::Gather;
use crate::store::Capabilities;
use layout::LAYOUT;

const WAIT: &str = include_str!("postgres/sql/wait.sql");
const PURGE: &str = include_str!("postgres/sql/purge.sql");
/// Between two looks for what may be forgotten.
const PURGE_EVERY_S: u64 = 10;

/// Queues in a Postgres database.
///
/// Cheap to clone; a clone is the same client. It opens its connections when it first
/// needs them and again when they fail, one set for each tokio runtime that it is used
/// from. See the [module's page](self).
#[derive(Clone)]
pub struct PostgresQueues {
    client: Client,
    statements: Arc<Statements>,
    keep: Duration,
    purged: Arc<Purged>,
    gather: Arc<Gather<Self>>,
}

struct Statements {
    put: SqlStr,
    next: SqlStr,
    key: SqlStr,
    settle: SqlStr,
    abandon: SqlStr,
    fence: SqlStr,
    requeue: SqlStr,
    inspect: SqlStr,
    keys: SqlStr,
    items: SqlStr,
    depth: SqlStr,
    purge: SqlStr,
    complete: SqlStr,
    inside: SqlStr,
}

/// When old records were last looked through, in seconds after the beginning.
struct Purged {
    beginning: Instant,
    last: AtomicU64,
}

impl PostgresQueues {
    /// Reads a URL: `queue+postgres://…`, and otherwise as
    /// [`PostgresOptions::from_url`] does, which takes the same options.
    ///
    /// # Errors
    /// As there.
    pub fn options(url: &str) -> Result<PostgresOptions, InvalidInput> {
        PostgresOptions::from_url(url.strip_prefix("queue+").unwrap_or(url))
    }

    /// Opens the store: connects to the server and sees to the tables, which are beside
    /// those of leases.
    ///
    /// # Errors
    /// As of [`PostgresOptions::open`]; `InvalidInput` for a `crash_detection`, which
    /// there is none of.
    ///
    /// # Cancel safety
    /// Safe: the connection is closed again; the tables may have been made.
    pub async fn open(options: PostgresOptions) -> Result<Self, StoreError> {
        let store = Self::open_lazily(options)?;
        store.client.connect(Over::Usual).await?;
        Ok(store)
    }

    /// Opens the store without connecting: for a program that must start while the
    /// server may be away. The tables are seen to at the first connection.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of its range, and for a `crash_detection`.
    pub fn open_lazily(options: PostgresOptions) -> Result<Self, StoreError> {
        parts::without_sessions(&options)?;
        let channel = format!("{}_q", parts::channel(&options));
        let usual = [
            claim::NEXT,
            claim::KEY,
            settle::SETTLE,
            store::PUT,
            store::ABANDON,
        ];
        let renewals = [settle::SETTLE];
        let client = Client::new(options, &LAYOUT, &usual, &renewals, (WAIT, channel))?;
        let sql = |text| client.statement(text);
        let statements = Statements {
            put: sql(store::PUT),
            next: sql(claim::NEXT),
            key: sql(claim::KEY),
            settle: sql(settle::SETTLE),
            abandon: sql(store::ABANDON),
            fence: sql(store::FENCE),
            requeue: sql(store::REQUEUE),
            inspect: sql(look::INSPECT),
            keys: sql(look::KEYS),
            items: sql(look::ITEMS),
            depth: sql(look::DEPTH),
            purge: sql(PURGE),
            complete: sql(in_transaction::COMPLETE),
            inside: sql(in_transaction::INSIDE),
        };
        Ok(Self {
            keep: row::micros(client.retention_us()),
            gather: Gather::new(client.connections(), client.connections()),
            client,
            statements: Arc::new(statements),
            purged: Arc::new(Purged {
                beginning: Instant::now(),
                last: AtomicU64::new(0),
            }),
        })
    }

    /// Opens a connection for extensions as well, for a test that must know what is under
    /// way.
    #[doc(hidden)]
    pub async fn connect_renewals(&self) -> Result<(), StoreError> {
        self.client.connect(Over::Renewals).await
    }

    /// The SQL that makes the schema, the tables and the functions, for somebody who
    /// may; a second run changes nothing.
    #[must_use]
    pub fn schema_sql(options: &PostgresOptions) -> String {
        parts::script(options, &LAYOUT)
    }

    /// The SQL that gives `role` the rights to use them, and no more; it then needs
    /// [`migrate`](PostgresOptions::migrate) no longer.
    #[must_use]
    pub fn grants_sql(options: &PostgresOptions, role: &str) -> String {
        parts::grants(options, &LAYOUT, role)
    }

    fn can(&self) -> Capabilities {
        let mut guarantees = self.client.guarantees();
        guarantees.store = "queue+postgres".into();
        guarantees.waiter_order = WaiterOrder::Fifo;
        let mut can = Capabilities::new(guarantees);
        can.dedup_window = self.keep;
        can
    }

    /// Forgets what may be forgotten, if it is time to look; nobody waits for it.
    fn purge_now_and_then(&self) {
        let now = self.purged.beginning.elapsed().as_secs() + PURGE_EVERY_S;
        let last = self.purged.last.load(Ordering::Relaxed);
        let mine = now >= last + PURGE_EVERY_S
            && self
                .purged
                .last
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !mine {
            return;
        }
        let store = self.clone();
        tokio::spawn(async move {
            if let Err(error) = store.purge().await {
                tracing::debug!(target: "leases", %error, "old records were not deleted");
            }
        });
    }

    async fn purge(&self) -> Result<(), StoreError> {
        let ask = || query(self.statements.purge.clone());
        loop {
            let rows = self
                .client
                .rows(Over::Usual, true, &"old records", ask)
                .await?;
            match rows.first() {
                Some(row) if column(row, "more")? => {}
                _ => return Ok(()),
            }
        }
    }
}

/// Nothing of the URL, which may hold secrets.
impl fmt::Debug for PostgresQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresQueues").finish_non_exhaustive()
    }
}

/// Tokens and TTLs are far below the limit.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn delay_us(delay: Duration) -> i64 {
    i64::try_from(delay.as_micros()).unwrap_or(i64::MAX)
}

/// Postgres takes no NUL in a text.
fn shown(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}
