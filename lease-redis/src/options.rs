//! How a store is opened.

use std::fmt;
use std::time::Duration;

use lease_core::{
    CrashRelease, Exclusion, ExpiryJudge, Guarantees, InvalidInput, StoreError, StoreErrorKind,
    Survives, TOMBSTONE_RETENTION, Ttl, TtlRange, WaiterOrder, WakeUps,
};

use redis::aio::ConnectionLike;

use crate::names::Names;
use crate::servers::Servers;
use crate::store::RedisStore;

/// The shortest time that the mark of an idle key is kept.
const MIN_MARK_RETENTION: Duration = Duration::from_secs(600);
/// Nobody waits longer than a hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// Replicas that a change waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// How many.
    pub(crate) replicas: u32,
    /// For how long, in whole milliseconds; never zero, which is for ever to
    /// Redis.
    pub(crate) within: Duration,
}

/// Options of a store on Redis.
///
/// ```
/// # fn f() -> Result<(), lease_core::InvalidInput> {
/// use std::time::Duration;
/// let options = lease_redis::RedisOptions::from_url("redis://127.0.0.1:6379")?
///     .prefix("my-app")?
///     .response_timeout(Duration::from_secs(2));
/// println!("{:?}", options.guarantees());
/// # Ok(()) }
/// # f().unwrap();
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RedisOptions {
    pub(crate) servers: Servers,
    pub(crate) names: Names,
    pub(crate) mark_retention: Duration,
    pub(crate) tombstone_retention: Duration,
    pub(crate) quarantine: Option<Ttl>,
    pub(crate) wait: Option<Wait>,
    pub(crate) durable: bool,
    pub(crate) response_timeout: Duration,
    pub(crate) connect_timeout: Duration,
}

impl RedisOptions {
    /// Reads a URL.
    ///
    /// * `redis://[user:password@]host[:port][/database]`; a password alone is
    ///   `redis://:password@host`, and `redis://[::1]` is an address of IPv6;
    /// * `rediss://…`, the same by TLS, with the cargo feature `tls` (a
    ///   default). The server's certificate is always checked: against the
    ///   system's, or against `?ca=/path/authority.pem`. A certificate of the
    ///   client's own is `?cert=/path/client.pem&key=/path/client-key.pem`; the
    ///   files are read here, once, and the system's at most once in the process.
    ///   There is no insecure mode;
    /// * `redis+unix:///path/to/socket` or `unix:///path/to/socket`, with
    ///   `?db=…&user=…&pass=…`;
    /// * `redis+sentinel://[user:password@]host[:port],host[:port]/name[/database]`
    ///   for the primary that these sentinels call `name`, and
    ///   `rediss+sentinel://…`, by TLS to all of them. The port of a sentinel is
    ///   26379 unless given. The login is that of the servers with data; the
    ///   sentinels' own, if they ask for one, is
    ///   `?sentinel_user=…&sentinel_password=…`, or the latter alone;
    /// * `redis+cluster://[user:password@]host[:port],host[:port],…`: some nodes of
    ///   a Redis Cluster, which know the others, with one login for all of them;
    ///   `rediss+cluster://…` by TLS. See [`cluster`](crate::guide::cluster);
    /// * `valkey://`, `valkeys://`, `valkey+unix://`, `valkey+sentinel://`,
    ///   `valkeys+sentinel://`, `valkey+cluster://` and `valkeys+cluster://` mean
    ///   the same.
    ///
    /// Every one takes the options `protocol` (`resp2`, the default, or
    /// `resp3`), `prefix`, `mark_retention_ms`, `tombstone_retention_ms`,
    /// `quarantine_ms`, `wait_replicas` with `wait_timeout_ms`, `durable`
    /// (`true` or `false`), `response_timeout_ms` and `connect_timeout_ms`; see
    /// the methods of the same names. Characters with a meaning in URLs are
    /// written as `%40` and the like, in passwords too.
    ///
    /// Connects to nothing.
    ///
    /// # Errors
    /// [`InvalidInput::Url`] for any other form, an option that is unknown,
    /// malformed or given twice, and a file that cannot be used. It never
    /// repeats the user's name, the password or the value of an option.
    pub fn from_url(url: &str) -> Result<Self, InvalidInput> {
        crate::url::parse(url)
    }

    /// Connects as `client` does, to the database and with the credentials, the
    /// protocol and the TLS settings that it was made with. The store opens
    /// connections of its own with it. By TLS, the driver reads the certificates
    /// that the system trusts for each of them; [`from_url`](Self::from_url) does not.
    ///
    /// Its TCP settings stay, but `TCP_NODELAY` is turned on, and keep-alive
    /// and `TCP_USER_TIMEOUT` are set where it sets none.
    #[must_use]
    pub fn from_client(client: redis::Client) -> Self {
        Self::of(Servers::one(client.into()))
    }

    /// Connects to the primary that these sentinels call `name`, as `node` does
    /// but for its address: to its database and with its credentials, protocol
    /// and TLS settings. Each of `sentinels` connects to one of them.
    ///
    /// Clients' TCP settings are treated as in [`from_client`](Self::from_client).
    ///
    /// # Errors
    /// [`InvalidInput::Url`] for a name that Sentinel does not take, and for no
    /// sentinels at all.
    pub fn from_sentinels(
        sentinels: impl IntoIterator<Item = redis::Client>,
        name: &str,
        node: redis::Client,
    ) -> Result<Self, InvalidInput> {
        let sentinels = sentinels.into_iter().map(Into::into).collect();
        let sentinels = crate::url::sentinels(sentinels, name, node.into())?;
        Ok(Self::of(Servers::sentinels(sentinels)))
    }

    /// The usual settings for these servers.
    pub(crate) fn of(servers: Servers) -> Self {
        Self {
            servers,
            names: Names::default(),
            mark_retention: Duration::from_secs(24 * 60 * 60),
            tombstone_retention: TOMBSTONE_RETENTION,
            quarantine: None,
            wait: None,
            durable: false,
            response_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
        }
    }

    /// What the names of all of the store's keys and channels start with; a `:`
    /// follows. Clients exclude each other only under the same prefix, in the
    /// same database.
    ///
    /// Defaults to `leases`.
    ///
    /// # Errors
    /// [`InvalidInput::Url`] unless it has 1 to 128 bytes, no braces and no
    /// control characters.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, InvalidInput> {
        self.names = Names::new(prefix)?;
        Ok(self)
    }

    /// How long the mark of an idle key (its highest token) is kept; then Redis
    /// forgets the key. Its next token is still higher, since no token is lower
    /// than the server's clock, unless that clock has stepped back by more than
    /// this.
    ///
    /// Defaults to 24 hours; at least 10 minutes and at least
    /// [`tombstone_retention`](Self::tombstone_retention).
    #[must_use]
    pub fn mark_retention(mut self, retention: Duration) -> Self {
        self.mark_retention = retention;
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

    /// Refuses every grant for `max_ttl` after a restart of the server (in a
    /// Redis Cluster, in each slot by itself), and after
    /// a replica was made the primary, so that exclusion survives what lost
    /// grants: all of them have ended by then. No TTL may be longer than `max_ttl` in return. All clients of a
    /// prefix need the same setting.
    ///
    /// The very first grant of a prefix waits too: a server that knows nothing
    /// of it may be a new one, or one that has forgotten everything.
    ///
    /// Defaults to off.
    #[must_use]
    pub fn quarantine(mut self, max_ttl: Ttl) -> Self {
        self.quarantine = Some(max_ttl);
        self
    }

    /// Answers a grant, a renewal and a fence only after `replicas` replicas have
    /// it. If they have not `within` this time (in whole milliseconds, rounded
    /// up; shorter than [`response_timeout`](Self::response_timeout)), a grant is
    /// given back and `Unavailable`, and the others are `UnknownOutcome`. A
    /// failover loses fewer grants then, but may still lose some: the new
    /// primary need not be one of those replicas. So nothing more is claimed in
    /// [`guarantees`](Self::guarantees). Not for a Redis Cluster.
    ///
    /// Defaults to off; 0 replicas turn it off again.
    #[must_use]
    pub fn wait_for_replicas(mut self, replicas: u32, within: Duration) -> Self {
        self.wait = (replicas > 0).then_some(Wait { replicas, within });
        self
    }

    /// Tells that the server runs with `appendonly yes` and `appendfsync
    /// always`, so that every grant is on its disk before it is answered.
    /// Changes only what [`guarantees`](Self::guarantees) claims; `lease
    /// doctor` checks that it is true. With Sentinel and in a Redis Cluster it
    /// changes nothing: what comes back after a crash may be another server.
    ///
    /// Defaults to `false`.
    #[must_use]
    pub fn durable(mut self, durable: bool) -> Self {
        self.durable = durable;
        self
    }

    /// How long the server may be silent while a request is under way. After
    /// that the connection is cut off and a new one is opened; what was under
    /// way has an unknown outcome.
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

    /// What a store with these options promises. Opens nothing.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        let mut exclusion = Survives::NOTHING;
        // What comes back may be another server, which need not have all that was
        // on the disk.
        if self.durable && !self.servers.fail_over() {
            exclusion = exclusion.restart();
        }
        if self.quarantine.is_some() {
            exclusion = exclusion.restart().data_loss();
        }
        // Tokens are never below the server's clock.
        let tokens = Survives::NOTHING.restart().data_loss();
        let max_ttl = self.quarantine.unwrap_or(Ttl::MAX);
        Guarantees::new(self.servers.store())
            .exclusion(Exclusion::SinglePrimary, exclusion)
            .tokens_survive(tokens)
            .ttl(TtlRange::new(Ttl::MIN, max_ttl, Duration::from_millis(1)))
            .expiry(ExpiryJudge::StoreClock)
            .wake_ups(WakeUps::Push)
            .waiter_order(WaiterOrder::None)
            .crash_release(CrashRelease::Ttl)
            .listing(true)
    }

    /// Opens the store and connects to the server.
    ///
    /// # Errors
    /// `Unavailable` when the server cannot be reached, `Refusing` when it
    /// refuses the user, `InvalidInput` for an option out of its range.
    ///
    /// # Cancel safety
    /// Safe: the connection is closed again.
    pub async fn open(self) -> Result<RedisStore, StoreError> {
        let store = self.open_lazily()?;
        store.connect().await?;
        Ok(store)
    }

    /// Opens the store without connecting: for a program that must start while
    /// the server may be away.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of its range.
    pub fn open_lazily(self) -> Result<RedisStore, StoreError> {
        Ok(RedisStore::new(self.checked()?))
    }

    /// Opens the store over a connection of the caller's own, instead of the
    /// client's: a [`MultiplexedConnection`](redis::aio::MultiplexedConnection)
    /// or whatever else the driver has, or a wrapper. Of these options, the
    /// client and the two time limits are not used then.
    ///
    /// That connection reconnects by itself, or does not; what the application
    /// puts on it (a blocking command, a long script, a transaction) keeps
    /// leases waiting, their renewals too. It must live on the runtimes that
    /// the store is used from. There are no wake-ups over it, so that waiting
    /// goes by timers alone, and no [`wait_for_replicas`](Self::wait_for_replicas).
    ///
    /// ```no_run
    /// // The same version of the driver as the store's: its re-export.
    /// use lease_redis::{RedisOptions, redis};
    ///
    /// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1/")?;
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let store = RedisOptions::from_client(client).open_over(connection.clone())?;
    /// // The application goes on with `connection`.
    /// # Ok(()) }
    /// ```
    ///
    /// An application with `redis` among its own dependencies needs the version
    /// that [`lease_redis::redis`](crate::redis) is: the types of any other are
    /// not these. It has the driver's features `tokio-comp`, `script` and
    /// `acl`; add there what else is used, as `connection-manager` for a
    /// `redis::aio::ConnectionManager`, which reconnects by itself.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of its range, or with
    /// `wait_for_replicas` or a Redis Cluster, which need connections of their
    /// own.
    pub fn open_over<C>(self, connection: C) -> Result<RedisStore, StoreError>
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        let options = self.checked()?;
        if options.wait.is_some() {
            return Err(invalid(
                "wait_for_replicas needs a connection of the store's own; open the store from a \
                 URL or a client"
                    .to_owned(),
            ));
        }
        if let Servers::Cluster(_) = options.servers {
            return Err(invalid(
                "a Redis Cluster needs connections of the store's own, one to each node; open the \
                 store from its URL by open()"
                    .to_owned(),
            ));
        }
        Ok(RedisStore::over(options, connection))
    }

    /// What the rest of the crate may rely on: durations above zero and no
    /// longer than a hundred years, retentions in whole milliseconds, a client
    /// with TCP settings for short messages.
    pub(crate) fn checked(mut self) -> Result<Self, StoreError> {
        self.response_timeout = positive("response_timeout", self.response_timeout)?;
        self.connect_timeout = positive("connect_timeout", self.connect_timeout)?;
        if self.tombstone_retention.is_zero() {
            return Err(zero("tombstone_retention"));
        }
        self.tombstone_retention = whole_millis(self.tombstone_retention);
        self.mark_retention = whole_millis(self.mark_retention);
        if self.mark_retention < MIN_MARK_RETENTION.max(self.tombstone_retention) {
            return Err(invalid(format!(
                "a mark_retention of {:?} is too short; use at least {MIN_MARK_RETENTION:?} and at \
                 least the tombstone_retention, {:?}",
                self.mark_retention, self.tombstone_retention
            )));
        }
        if self.tombstone_retention < self.response_timeout {
            return Err(invalid(format!(
                "a tombstone_retention of {:?} is shorter than the response_timeout of {:?}, for \
                 which a request can be under way; make it longer",
                self.tombstone_retention, self.response_timeout
            )));
        }
        if self.wait.is_some() && matches!(self.servers, Servers::Cluster(_)) {
            return Err(invalid(
                "wait_for_replicas does not go with a Redis Cluster: a WAIT would keep everybody's \
                 requests to that node waiting; leave it out (in a URL wait_replicas and \
                 wait_timeout_ms), and use a quarantine"
                    .to_owned(),
            ));
        }
        if let Some(wait) = &mut self.wait {
            if wait.within.is_zero() {
                return Err(zero("the time limit of wait_for_replicas"));
            }
            wait.within = whole_millis(wait.within);
            if wait.within >= self.response_timeout {
                return Err(invalid(format!(
                    "wait_for_replicas waits for {:?}, but the server is cut off after a \
                     response_timeout of {:?}; make the latter longer",
                    wait.within, self.response_timeout
                )));
            }
        }
        self.servers = self.servers.tuned(self.response_timeout).map_err(|error| {
            StoreError::with_source(
                StoreErrorKind::InvalidInput,
                "the Redis client cannot be used; check how it was made",
                error,
            )
        })?;
        Ok(self)
    }
}

fn invalid(words: String) -> StoreError {
    StoreError::new(StoreErrorKind::InvalidInput, words)
}

fn zero(option: &'static str) -> StoreError {
    InvalidInput::ZeroDuration { option }.into()
}

fn positive(option: &'static str, time: Duration) -> Result<Duration, StoreError> {
    if time < Duration::from_millis(1) {
        return Err(zero(option));
    }
    // Longer is for ever, and would overflow the clock.
    Ok(time.min(FOR_EVER))
}

/// Rounded up, since what is kept must not be kept for less.
fn whole_millis(time: Duration) -> Duration {
    let time = time.min(FOR_EVER);
    let over = time.subsec_nanos() % 1_000_000;
    match over {
        0 => time,
        over => time + Duration::from_nanos(u64::from(1_000_000 - over)),
    }
}

/// Says where the server is, and nothing of who logs in and how.
impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            servers,
            names,
            mark_retention,
            tombstone_retention,
            quarantine,
            wait,
            durable,
            response_timeout,
            connect_timeout,
        } = self;
        let mut shown = f.debug_struct("RedisOptions");
        servers.show(&mut shown);
        shown
            .field("names", names)
            .field("mark_retention", mark_retention)
            .field("tombstone_retention", tombstone_retention)
            .field("quarantine", quarantine)
            .field("wait", wait)
            .field("durable", durable)
            .field("response_timeout", response_timeout)
            .field("connect_timeout", connect_timeout)
            .finish()
    }
}

#[cfg(test)]
mod tests;
