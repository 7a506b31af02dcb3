//! How a store is opened.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::{Client, ConnectOptions};
use lease_core::{Guarantees, InvalidInput, StoreError, StoreErrorKind, TOMBSTONE_RETENTION};
use tokio::sync::watch;

use super::lazily::LazyNatsStore;
use super::link::Line;
use super::login::KeyFile;
use super::names::Names;
use super::store::NatsStore;
use super::{errors, promise, url};

/// The longest pause before the driver tries to connect again.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Where the servers are, and who comes.
#[derive(Clone)]
pub(super) enum Servers {
    Url {
        /// Without a login.
        addresses: Vec<String>,
        login: Option<(String, String)>,
        authority: Option<PathBuf>,
        /// Instead of a login.
        keys: Option<KeyFile>,
    },
    Client(Client),
}

/// Options of a store on NATS JetStream.
///
/// ```
/// # fn f() -> Result<(), lease_core::InvalidInput> {
/// use std::time::Duration;
/// let options = lease_queue::nats::NatsOptions::from_url("nats://127.0.0.1:4222")?
///     .prefix("my-app")?
///     .response_timeout(Duration::from_secs(2));
/// # let _ = options;
/// # Ok(()) }
/// # f().unwrap();
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct NatsOptions {
    pub(super) servers: Servers,
    pub(super) names: Names,
    pub(super) replicas: Option<usize>,
    pub(super) tombstone_retention: Duration,
    pub(super) response_timeout: Duration,
}

impl NatsOptions {
    /// Reads a URL: `nats://[user:password@]host[:port][,host[:port]…]`, or `tls://…`
    /// for TLS, where the server's certificate is checked against the system's
    /// authorities, or against `?ca=/path/authority.pem`. A user's name alone is a
    /// token. Who is known by a key comes with a file instead of a login:
    /// `?creds=/path/user.creds`, a user's JWT and seed as `nsc` writes them, or
    /// `?nkey=/path/user.nk`, the seed alone. It is read when the store is opened.
    ///
    /// Options are `prefix`, `replicas`, `tombstone_retention_ms` and
    /// `response_timeout_ms`; see the methods of the same names. Characters with a
    /// meaning in URLs are written as `%40` and the like, in passwords too.
    ///
    /// Connects to nothing.
    ///
    /// # Errors
    /// [`InvalidInput::Url`] for any other form, and an option that is unknown,
    /// malformed or given twice. It never repeats the user's name, the password or the
    /// value of an option.
    pub fn from_url(url: &str) -> Result<Self, InvalidInput> {
        url::parse(url)
    }

    /// Uses the connection of a client of the caller's own, of the driver's version
    /// that is re-exported as [`async_nats`](super::async_nats). What it was sent
    /// when its connection ends is known to be unanswered only after the
    /// [`response_timeout`](Self::response_timeout).
    #[must_use]
    pub fn from_client(client: Client) -> Self {
        Self::of(Servers::Client(client))
    }

    pub(super) fn of(servers: Servers) -> Self {
        Self {
            servers,
            names: Names::default(),
            replicas: None,
            tombstone_retention: TOMBSTONE_RETENTION,
            response_timeout: Duration::from_secs(5),
        }
    }

    /// What the names of the store's stream and subjects start with. Clients exclude
    /// each other only under the same prefix, in the same account.
    ///
    /// Defaults to `leases`.
    ///
    /// # Errors
    /// [`InvalidInput::Url`] unless it has 1 to 64 letters, digits, `-` and `_`.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, InvalidInput> {
        self.names = Names::new(prefix)?;
        Ok(self)
    }

    /// On how many servers the streams are kept, if this client is the one that makes
    /// them: 1, 3 or 5. A stream that is there stays as it is.
    ///
    /// Defaults to 3 in a cluster, and to 1 on a server alone.
    #[must_use]
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = Some(replicas);
        self
    }

    /// How long an abandoned or revoked owner is remembered, by the clock of the
    /// server, if no more than 128 others of the same key come after it. Owners of items:
    /// always 10 minutes, as all clients of a queue must agree.
    ///
    /// Defaults to [`TOMBSTONE_RETENTION`], 10 minutes.
    #[must_use]
    pub fn tombstone_retention(mut self, retention: Duration) -> Self {
        self.tombstone_retention = retention;
        self
    }

    /// How long one operation may take in all. Each of its requests is given up after
    /// a third of it, and made again where that can do no harm.
    ///
    /// Defaults to 5 s; at least 30 ms.
    #[must_use]
    pub fn response_timeout(mut self, limit: Duration) -> Self {
        self.response_timeout = limit;
        self
    }

    /// What the leases of such a store promise, on as many servers as
    /// [`replicas`](Self::replicas) says, or on one. An opened store knows its stream's
    /// own number, in its [`capabilities`](crate::QueueStore::capabilities).
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        promise::guarantees(self.replicas.unwrap_or(1))
    }

    /// Connects, and makes the stream of the owner records if it is not there. Those of
    /// items are made when items are first used.
    ///
    /// # Errors
    /// `Unavailable` when no server can be reached or JetStream does not answer,
    /// `Refusing` when the server refuses the user, has no JetStream, or has a stream
    /// of that name that is not ours, `InvalidInput` for an option out of its range.
    ///
    /// # Cancel safety
    /// The connection is closed again; streams may have been made.
    pub async fn open(self) -> Result<NatsStore, StoreError> {
        self.check()?;
        let (client, line) = self.connect().await?;
        NatsStore::open(self, client, line).await
    }

    /// Opens the store without connecting: for a program that must start while the
    /// servers may be away. The first operation does what [`open`](Self::open) does, and
    /// its errors are those of that one.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of its range.
    pub fn open_lazily(self) -> Result<LazyNatsStore, StoreError> {
        self.check()?;
        Ok(LazyNatsStore::new(self))
    }

    fn check(&self) -> Result<(), StoreError> {
        let bad = |words: &str| Err(StoreError::new(StoreErrorKind::InvalidInput, words));
        if self.response_timeout < Duration::from_millis(30) {
            return bad("response_timeout must be 30 ms at least");
        }
        if self.tombstone_retention.is_zero() {
            return bad("tombstone_retention must be longer than zero");
        }
        match self.replicas {
            None | Some(1 | 3 | 5) => Ok(()),
            Some(_) => bad("replicas must be 1, 3 or 5"),
        }
    }

    async fn connect(&self) -> Result<(Client, watch::Receiver<Line>), StoreError> {
        let (addresses, login, authority, keys) = match &self.servers {
            Servers::Client(client) => {
                // Nobody tells of its connection: it is taken to stand.
                let line = Line {
                    stands: true,
                    ends: 0,
                };
                return Ok((client.clone(), watch::channel(line).1));
            }
            Servers::Url {
                addresses,
                login,
                authority,
                keys,
            } => (addresses, login, authority, keys),
        };
        let (tell, line) = watch::channel(Line::default());
        let mut options = ConnectOptions::new()
            .name("leases")
            .connection_timeout(self.response_timeout)
            .request_timeout(Some(self.response_timeout))
            .reconnect_delay_callback(|tries| {
                let shift = u32::try_from(tries).unwrap_or(u32::MAX).min(9);
                Duration::from_millis(1 << shift).min(LONGEST_PAUSE)
            })
            .event_callback(move |event| {
                tell.send_modify(|line| line.note(&event));
                std::future::ready(())
            });
        options = match login {
            None => options,
            Some((token, password)) if password.is_empty() => options.token(token.clone()),
            Some((user, password)) => options.user_and_password(user.clone(), password.clone()),
        };
        if let Some(keys) = keys {
            options = keys.apply(options).await?;
        }
        if let Some(authority) = authority {
            options = options.add_root_certificates(authority.clone());
        }
        let client = options
            .connect(addresses.as_slice())
            .await
            .map_err(errors::of_connect)?;
        Ok((client, line))
    }
}

impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = match &self.servers {
            Servers::Url { addresses, .. } => addresses.as_slice(),
            Servers::Client(_) => &[],
        };
        f.debug_struct("NatsOptions")
            .field("addresses", &addresses)
            .field("names", &self.names)
            .field("replicas", &self.replicas)
            .field("tombstone_retention", &self.tombstone_retention)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}
