//! How a store is opened.

pub(crate) mod limits;
mod shown;

use std::sync::Arc;
use std::time::Duration;

use lease_core::{
    CrashRelease, Exclusion, ExpiryJudge, Guarantees, InvalidInput, StoreError, Survives,
    TOMBSTONE_RETENTION, WaiterOrder, WakeUps,
};
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPool};

use crate::connection::Origin;
use crate::in_transaction::InTransaction;
use crate::layout::LEASES;
use crate::names::Names;
use crate::schema::{self, Making};
use crate::store::PostgresStore;

/// Options of a store on Postgres.
///
/// ```
/// # fn f() -> Result<(), lease_core::InvalidInput> {
/// use std::time::Duration;
/// let options = lease_postgres::PostgresOptions::from_url("postgres://app@db.example/app")?
///     .schema("coordination")?
///     .response_timeout(Duration::from_secs(2));
/// println!("{}", options.schema_sql());
/// # Ok(()) }
/// # f().unwrap();
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct PostgresOptions {
    pub(crate) connect: PgConnectOptions,
    pub(crate) names: Names,
    pub(crate) making: Making,
    pub(crate) connections: usize,
    pub(crate) asynchronous_commit: bool,
    pub(crate) tombstone_retention: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) crash_detection: Option<Duration>,
}

impl PostgresOptions {
    /// A grace for [`crash_detection`](Self::crash_detection) that suits a server
    /// in the same place: 1.5 s. A crashed client's keys are free in less than
    /// 3 s.
    pub const GRACE: Duration = Duration::from_millis(1_500);

    /// Reads a URL: `postgres://[user[:password]@][host][:port][/database]`, or
    /// `postgresql://…`, which means the same. A socket's folder is written
    /// `?host=/var/run/postgresql`.
    ///
    /// It takes the driver's own options `host`, `port`, `dbname`, `user`,
    /// `password`, `application_name`, `options` (settings of the session, such as
    /// `-c%20timezone=UTC`), `sslmode` (`disable`, `allow`, `prefer`,
    /// which is the default, `require`, `verify-ca`, `verify-full`),
    /// `sslrootcert`, `sslcert` and `sslkey`, and ours: `schema`, `table_prefix`,
    /// `migrate` (`true` or `false`), `connections`, `asynchronous_commit`
    /// (`true` or `false`), `tombstone_retention_ms`, `response_timeout_ms`,
    /// `connect_timeout_ms` and `crash_detection` (`true` for
    /// [`GRACE`](Self::GRACE), a grace such as `1500ms`, or `false`); see the methods of the same names. Characters with a
    /// meaning in URLs are written as `%40` and the like, in passwords too.
    ///
    /// What the URL does not say comes from the environment (`PGHOST`, `PGUSER`,
    /// `PGPASSWORD` …) and from `.pgpass`, as with every Postgres client; the
    /// [crate's page](crate#the-environment) lists what counts.
    ///
    /// Connects to nothing.
    ///
    /// # Errors
    /// [`InvalidInput::Url`] for any other form, and an option that is unknown,
    /// malformed or given twice. It never repeats the password or the value of an
    /// option.
    pub fn from_url(url: &str) -> Result<Self, InvalidInput> {
        crate::url::parse(url)
    }

    /// Connects as these options say. The store opens connections of its own with
    /// them.
    #[must_use]
    pub fn from_options(connect: PgConnectOptions) -> Self {
        // A pooler in between would refuse the setting, which is of no use here.
        let connect = connect.extra_float_digits(None);
        let connect = match connect.get_application_name() {
            None => connect.application_name("leases"),
            Some(_) => connect,
        };
        Self {
            connect: connect.disable_statement_logging(),
            names: Names::default(),
            making: Making::Missing,
            connections: 4,
            asynchronous_commit: false,
            tombstone_retention: TOMBSTONE_RETENTION,
            response_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            crash_detection: None,
        }
    }

    /// Connects as `pool` does, to the same database as the same role. Nothing is
    /// borrowed from the pool: an application that has exhausted it loses no
    /// lease.
    #[must_use]
    pub fn from_pool(pool: &PgPool) -> Self {
        Self::from_options(pool.connect_options().as_ref().clone())
    }

    /// The schema of the store's tables, as it is written: no upper or lower
    /// case is changed. Clients exclude each other only in the same schema, with
    /// the same [`table_prefix`](Self::table_prefix).
    ///
    /// Defaults to `public`. The role's `search_path` does not matter.
    ///
    /// # Errors
    /// [`InvalidInput::Url`] unless it has 1 to 63 bytes and no control
    /// characters.
    pub fn schema(mut self, schema: &str) -> Result<Self, InvalidInput> {
        self.names = self.names.with_schema(schema)?;
        Ok(self)
    }

    /// What the names of the store's tables start with, as it is written.
    ///
    /// Defaults to `lease_`.
    ///
    /// # Errors
    /// [`InvalidInput::Url`] unless it has at most 47 bytes and no control
    /// characters.
    pub fn table_prefix(mut self, prefix: &str) -> Result<Self, InvalidInput> {
        self.names = self.names.with_prefix(prefix)?;
        Ok(self)
    }

    /// Whether to make the schema and the tables if they are missing. Any number
    /// of programs may start at once on an empty database. Without it, somebody
    /// runs [`schema_sql`](Self::schema_sql) before.
    ///
    /// Defaults to `true`.
    #[must_use]
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.making = match migrate {
            true => Making::Missing,
            false => Making::Nothing,
        };
        self
    }

    /// For a program that only looks: a store that makes nothing, and needs nothing but
    /// the tables. Where they are not there it says so, so that a slip in the name of a
    /// schema is told and makes no new one.
    ///
    /// Takes the place of [`migrate`](Self::migrate).
    #[must_use]
    pub fn only_look(mut self) -> Self {
        self.making = Making::NothingToLook;
        self
    }

    /// How many connections may be open at most, in each tokio runtime, beside
    /// two for renewals and one for wake-ups while somebody waits. They are
    /// opened as needed: a program with few requests has one. More are of use
    /// where the server is far away; requests of many tasks share statements
    /// anyway.
    ///
    /// Defaults to 4; 1 to 64.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Answers grants, renewals and fences before they are on the server's disk.
    /// Much faster, and a crash of the server loses the last of them (up to
    /// three times `wal_writer_delay`, 600 ms): exclusion survives no restart
    /// then, as [`guarantees`](Self::guarantees) says.
    ///
    /// Without it, the store commits with `synchronous_commit` `on` or
    /// `remote_apply`, whatever the role's default is.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub fn asynchronous_commit(mut self, asynchronous: bool) -> Self {
        self.asynchronous_commit = asynchronous;
        self
    }

    /// How long an abandoned or revoked owner is remembered: longer than any
    /// of its requests can still be under way.
    ///
    /// Defaults to [`TOMBSTONE_RETENTION`], 10 minutes.
    #[must_use]
    pub fn tombstone_retention(mut self, retention: Duration) -> Self {
        self.tombstone_retention = retention;
        self
    }

    /// How long the server may be silent while a request is under way. After
    /// that the connection is given up; what was under way has an unknown
    /// outcome. The server gives a statement up sooner, so that its outcome is
    /// known; and a request whose row somebody else keeps locked is `Unavailable`
    /// after this time.
    ///
    /// Defaults to 5 s; at least 1 ms.
    #[must_use]
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = limit;
        self
    }

    /// How long opening a connection may take, name lookup, TLS and login
    /// included.
    ///
    /// Defaults to 5 s; at least 1 ms.
    #[must_use]
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Frees the keys of a client that crashed soon after its session with the
    /// server is gone, instead of at the end of their TTL. Other clients of this
    /// version see that, with or without the option; whoever waits looks once in a
    /// second with it, and every 5 s without. A client that only lost its
    /// connection keeps its leases if it has another session, and has renewed
    /// them, within `grace`.
    ///
    /// **The price.** Every lease of this client is good for no longer than
    /// `grace` after the last sign of its life that the server confirmed, whatever
    /// its TTL: an outage, a restart or a failover that lasts longer than `grace`
    /// loses all of them. A handle of `Leases` knows that; who uses the store
    /// without one must keep to what
    /// [`ping`](lease_core::LeaseBackend::ping) asks for.
    ///
    /// It takes one connection more for each tokio runtime, with one advisory lock
    /// (a 63-bit number chosen by chance), which is asked four times in a grace
    /// while leases are held; and a renewal soon after each grant. It needs a
    /// session of the server's: behind a pooler that gives each transaction another
    /// one, acquiring is `Refusing`. That is found out by trying.
    ///
    /// A grant that is to outlive the process that acquired it
    /// ([`Lease::detach`](lease_core::Lease::detach), `lease acquire`) does not: use
    /// a store without this for those. `lease run` has a third of the grace to stop
    /// its command.
    ///
    /// Defaults to none; [`GRACE`](Self::GRACE) suits most; 500 ms to 60 s.
    #[must_use]
    pub fn crash_detection(mut self, grace: impl Into<Option<Duration>>) -> Self {
        self.crash_detection = grace.into();
        self
    }

    /// The SQL that makes the store's schema, tables and functions, for somebody who may; a
    /// second run changes nothing.
    #[must_use]
    pub fn schema_sql(&self) -> String {
        schema::script::all(&LEASES, &self.names)
    }

    /// The SQL that gives `role` the rights to use the tables, and no more; it
    /// then needs [`migrate`](Self::migrate) no longer.
    #[must_use]
    pub fn grants_sql(&self, role: &str) -> String {
        schema::script::grants(&LEASES, &self.names, role)
    }

    /// What uses this store's leases inside transactions of the user's own, over the
    /// user's connections. Opens nothing.
    #[must_use]
    pub fn in_transaction(&self) -> InTransaction {
        InTransaction::new(&self.names)
    }

    /// What a store with these options promises. Opens nothing, so that it does not
    /// know of a pooler, behind which wake-ups are polls; a store that has connected
    /// does.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        let exclusion = match self.asynchronous_commit {
            true => Survives::NOTHING,
            false => Survives::NOTHING.restart(),
        };
        // Tokens are never below the server's clock.
        let tokens = Survives::NOTHING.restart().data_loss();
        Guarantees::new("postgres")
            .exclusion(Exclusion::SinglePrimary, exclusion)
            .tokens_survive(tokens)
            .expiry(ExpiryJudge::StoreClock)
            .wake_ups(WakeUps::Push)
            .waiter_order(WaiterOrder::None)
            .crash_release(match self.crash_detection {
                Some(grace) => CrashRelease::SessionLost { grace },
                None => CrashRelease::Ttl,
            })
            .listing(true)
    }

    /// Opens the store: connects to the server and sees to the tables.
    ///
    /// # Errors
    /// `Unavailable` when the server cannot be reached or takes no more
    /// connections, `Refusing` when it refuses the user or the tables are missing
    /// or somebody else's, `InvalidInput` for an option out of its range.
    ///
    /// # Cancel safety
    /// Safe: the connection is closed again; the tables may have been made.
    pub async fn open(self) -> Result<PostgresStore, StoreError> {
        let store = self.open_lazily()?;
        store.connect().await?;
        Ok(store)
    }

    /// Opens the store without connecting: for a program that must start while
    /// the server may be away. The tables are seen to at the first connection.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of its range.
    pub fn open_lazily(self) -> Result<PostgresStore, StoreError> {
        Ok(PostgresStore::new(self.checked()?))
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin {
            connect: self.connect.clone(),
            connect_timeout: self.connect_timeout,
            response_timeout: self.response_timeout,
            asynchronous: self.asynchronous_commit,
            way: Arc::default(),
        }
    }

    pub(crate) fn retention_us(&self) -> i64 {
        i64::try_from(self.tombstone_retention.as_micros()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests;
