//! What the store of queues on Postgres is made of, beside tables of its own. Not for
//! anybody else: it may change at any time.
//!
//! Connections, time limits, what a failure means, schema set-up, wake-ups and the
//! doctor are those of the store of leases.

mod answers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use lease_core::{Diagnosis, Guarantees, StoreError, Ttl};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, SqlSafeStr as _, SqlStr};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::connection::Origin;
use crate::doctor::{self, Facts};
use crate::held::Held;
pub use crate::lane::again::Again;
pub use crate::layout::{Function, Layout, Table};
use crate::options::PostgresOptions;
use crate::options::limits::invalid;
use crate::pooler;
use crate::runtimes::{Ends, Runtimes};
use crate::schema::{Making, Schema, script as sql_script};
use crate::sql::filled;
use crate::wake::WakeUps;
use crate::wire::{Failure, Wire};
pub use answers::{call_in, column, foreign, odd};

/// Connections for renewals alone.
const RENEWAL_CONNECTIONS: usize = 2;

/// Over which connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Any of the usual ones.
    Usual,
    /// Those that renewals have for themselves.
    Renewals,
}

/// What a statement answered.
#[derive(Debug)]
pub struct Asked {
    /// The answer to the last copy of it.
    pub rows: Vec<PgRow>,
    /// Why an earlier copy may have taken effect, or may yet do so: an error of an
    /// unknown outcome.
    pub doubt: Option<StoreError>,
}

/// One client of tables of a layout.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    options: PostgresOptions,
    layout: &'static Layout,
    origin: Origin,
    schema: Arc<Schema>,
    usual: Vec<SqlStr>,
    renewals: Vec<SqlStr>,
    wake_ups: WakeUps,
    pools: Runtimes<Pools>,
}

struct Pools {
    usual: Wire,
    renewals: Wire,
}

impl Ends for Pools {
    fn end(&self) {
        self.usual.held().close();
        self.renewals.held().close();
    }
}

impl Client {
    /// Connects to nothing. `usual` and `renewals` are prepared at each new
    /// connection; `wait` marks what is waited for, as `await.sql` does, and
    /// notifications come over `channel`.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of its range.
    pub fn new(
        options: PostgresOptions,
        layout: &'static Layout,
        usual: &[&str],
        renewals: &[&str],
        (wait, channel): (&str, String),
    ) -> Result<Self, StoreError> {
        let options = options.checked()?;
        let origin = options.origin();
        let fill = |text: &str| statement(&options, text);
        Ok(Self {
            inner: Arc::new(Inner {
                layout,
                schema: Arc::new(Schema::new(layout, options.names.clone(), options.making)),
                wake_ups: WakeUps::new(origin.clone(), fill(wait), channel),
                usual: usual.iter().map(|text| fill(text)).collect(),
                renewals: renewals.iter().map(|text| fill(text)).collect(),
                origin,
                pools: Runtimes::default(),
                options,
            }),
        })
    }

    /// Connects if there is no connection, and sees to the tables.
    ///
    /// # Errors
    /// As of [`PostgresOptions::open`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn connect(&self, over: Over) -> Result<(), StoreError> {
        let pools = self.pools()?;
        let wire = match over {
            Over::Usual => &pools.usual,
            Over::Renewals => &pools.renewals,
        };
        let taken = wire.held().take().await?;
        taken.unasked();
        Ok(())
    }

    /// A statement with the names of the tables in it.
    #[must_use]
    pub fn statement(&self, text: &str) -> SqlStr {
        statement(&self.inner.options, text)
    }

    /// How many connections there may be at once, of each runtime.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.inner.options.connections
    }

    /// How long the server may be silent.
    #[must_use]
    pub fn response_timeout(&self) -> Duration {
        self.inner.options.response_timeout
    }

    /// How long an abandoned owner is remembered, in microseconds.
    #[must_use]
    pub fn retention_us(&self) -> i64 {
        self.inner.options.retention_us()
    }

    /// The whole answer to one statement, as [`ask`](Self::ask) gives it.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn rows<'q>(
        &self,
        over: Over,
        repeatable: bool,
        what: &(dyn fmt::Debug + Sync),
        ask: impl Fn() -> Query<'q, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, StoreError> {
        Ok(self.ask(over, repeatable, what, ask).await?.rows)
    }

    /// The whole answer to one statement. It is asked again while others' statements
    /// are in the way; and once more over another connection where that can do no
    /// harm, also after it may have taken effect if it is `repeatable`.
    ///
    /// # Errors
    /// As of any operation of a store.
    ///
    /// # Cancel safety
    /// It may or may not take effect. The connection is used again once it has
    /// answered, or given up.
    pub async fn ask<'q>(
        &self,
        over: Over,
        repeatable: bool,
        what: &(dyn fmt::Debug + Sync),
        ask: impl Fn() -> Query<'q, Postgres, PgArguments>,
    ) -> Result<Asked, StoreError> {
        let pools = self.pools()?;
        let wire = match over {
            Over::Usual => &pools.usual,
            Over::Renewals => &pools.renewals,
        };
        let begun = Instant::now();
        let mut again = Again::new(wire.response_timeout());
        let mut unknown: Option<StoreError> = None;
        let mut anew = true;
        loop {
            match (wire.rows(ask()).await, unknown.as_ref()) {
                (Ok(rows), _) => {
                    return Ok(Asked {
                        rows,
                        doubt: unknown,
                    });
                }
                (Err(Failure::Raced(_)), _) => again.pause(what).await?,
                // The next connection makes the tables anew, or says why not.
                (Err(Failure::Unsent(_) | Failure::NoTables(_)), None) if anew => anew = false,
                (Err(Failure::Gone(error)), None)
                    if repeatable
                        && error.is_unknown_outcome()
                        && begun.elapsed() <= wire.response_timeout() / 2 =>
                {
                    unknown = Some(error);
                }
                (Err(failure), None) => return Err(failure.into()),
                // The first one may have taken effect.
                (Err(_), Some(first)) => return Err(first.clone()),
            }
        }
    }

    /// Hints at this topic, as `LeaseBackend::watch` gives them.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// As there.
    pub async fn watch(&self, topic: String) -> Result<BoxStream<'static, ()>, StoreError> {
        let way = &self.inner.origin.way;
        if way.shares().is_none() {
            self.connect(Over::Usual).await?;
        }
        match way.shares() {
            Some(true) => Ok(pooler::polls()),
            _ => self.inner.wake_ups.watch(topic).await,
        }
    }

    /// What it promises, as leases in the same server would.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        let guarantees = self.inner.options.guarantees();
        match self.inner.origin.way.shares() {
            Some(true) => guarantees.wake_ups(lease_core::WakeUps::Poll {
                every: pooler::POLL,
            }),
            _ => guarantees,
        }
    }

    /// Looks at the server, and at these tables.
    ///
    /// # Errors
    /// As of `LeaseBackend::diagnose`.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        let options = &self.inner.options;
        let facts = Facts {
            ttl,
            layout: self.inner.layout,
            names: options.names.clone(),
            migrate: options.making == Making::Missing,
            connections: options.connections,
            asynchronous: options.asynchronous_commit,
        };
        doctor::diagnose(&self.inner.origin, &facts).await
    }

    fn pools(&self) -> Result<Arc<Pools>, StoreError> {
        let inner = &self.inner;
        inner.pools.here(|runtime| inner.pools_on(runtime))
    }
}

impl Inner {
    fn pools_on(&self, runtime: &Handle) -> Pools {
        let wire = |most, prepared: &Vec<SqlStr>| {
            let prepared = match self.options.making {
                // Looks need none of the functions.
                Making::NothingToLook => Vec::new(),
                _ => prepared.clone(),
            };
            let held = Held::new(
                self.origin.clone(),
                Arc::clone(&self.schema),
                runtime.clone(),
                most,
                prepared,
            );
            Wire::new(held, self.options.response_timeout)
        };
        let usual = wire(self.options.connections, &self.usual);
        let renewals = wire(RENEWAL_CONNECTIONS, &self.renewals).or_else(usual.held());
        Pools { usual, renewals }
    }
}

/// Nothing of the URL, which may hold secrets.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// A statement with the names of the options' tables in it.
#[must_use]
pub fn statement(options: &PostgresOptions, text: &str) -> SqlStr {
    // Nothing of a user's but the names, and those are quoted.
    AssertSqlSafe(filled(text, &options.names)).into_sql_str()
}

/// The channel of the store of leases with these options.
#[must_use]
pub fn channel(options: &PostgresOptions) -> String {
    options.names.channel()
}

/// The SQL that makes a layout's tables, for whoever runs it by hand.
#[must_use]
pub fn script(options: &PostgresOptions, layout: &Layout) -> String {
    sql_script::all(layout, &options.names)
}

/// The SQL that gives a role the rights to use them.
#[must_use]
pub fn grants(options: &PostgresOptions, layout: &Layout, role: &str) -> String {
    sql_script::grants(layout, &options.names, role)
}

/// Refuses what a store without sessions cannot do.
///
/// # Errors
/// `InvalidInput` where crash detection is asked for.
pub fn without_sessions(options: &PostgresOptions) -> Result<(), StoreError> {
    match options.crash_detection {
        None => Ok(()),
        Some(_) => Err(invalid(
            "a store of queues has no crash_detection: a claim ends with its TTL; leave it out, \
             and choose a shorter TTL"
                .to_owned(),
        )),
    }
}
