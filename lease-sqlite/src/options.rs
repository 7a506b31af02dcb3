//! How a store is opened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use lease_core::{
    Exclusion, Guarantees, InvalidInput, StoreError, StoreErrorKind, Survives, TOMBSTONE_RETENTION,
    Ttl, TtlRange, WakeUps,
};

use crate::SqliteStore;

/// Nobody waits longer than a hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// Options of an [`SqliteStore`].
///
/// ```no_run
/// # async fn f() -> Result<(), lease_core::StoreError> {
/// use std::time::Duration;
/// let store = lease_sqlite::SqliteOptions::new("/var/lib/app/leases.db")
///     .busy_wait(Duration::from_secs(2))
///     .open()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SqliteOptions {
    pub(crate) path: PathBuf,
    pub(crate) busy_wait: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) tombstone_retention: Duration,
}

impl SqliteOptions {
    /// The database file at `path`; it is created if it is missing, its folder
    /// is not.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            busy_wait: Duration::from_secs(5),
            poll_interval: Duration::from_millis(20),
            tombstone_retention: TOMBSTONE_RETENTION,
        }
    }

    /// Reads a URL: `sqlite:///absolute/path` or `sqlite:relative/path`, with
    /// `%20` and the like for unusual characters, and with any of
    /// `?busy_wait_ms=…&poll_interval_ms=…&tombstone_retention_ms=…`.
    ///
    /// # Errors
    /// [`InvalidInput::Url`] for any other form or option.
    pub fn from_url(url: &str) -> Result<Self, InvalidInput> {
        crate::url::parse(url)
    }

    /// How long one operation waits for the database's lock while another
    /// connection holds it; then it is `Unavailable`.
    ///
    /// Defaults to 5 s.
    #[must_use]
    pub fn busy_wait(mut self, limit: Duration) -> Self {
        self.busy_wait = limit;
        self
    }

    /// How often a watcher looks for changes of other processes. Nobody looks
    /// while nobody watches.
    ///
    /// Defaults to 20 ms; at least 1 ms.
    #[must_use]
    pub fn poll_interval(mut self, every: Duration) -> Self {
        self.poll_interval = every;
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

    /// What a store with these options promises. Opens nothing.
    #[must_use]
    pub fn guarantees(&self) -> Guarantees {
        // SQLite's clock is the machine's wall clock, which may be stepped, so
        // neither promise survives that.
        let restart = Survives::NOTHING.restart();
        Guarantees::new("sqlite")
            .exclusion(Exclusion::Host, restart)
            .tokens_survive(restart.data_loss())
            .ttl(TtlRange::new(Ttl::MIN, Ttl::MAX, Duration::from_millis(1)))
            .wake_ups(WakeUps::Poll {
                every: self.poll_interval,
            })
            .listing(true)
    }

    /// Opens the store; see [`SqliteStore::open`].
    ///
    /// # Errors
    /// As [`SqliteStore::open`]; an option that is zero is `InvalidInput`.
    ///
    /// # Cancel safety
    /// Safe; the file may have been created.
    pub async fn open(self) -> Result<SqliteStore, StoreError> {
        SqliteStore::start(self.checked()?).await
    }

    fn checked(mut self) -> Result<Self, StoreError> {
        let zero = |option| StoreError::from(InvalidInput::ZeroDuration { option });
        if self.poll_interval < Duration::from_millis(1) {
            return Err(zero("poll_interval (in whole milliseconds)"));
        }
        if self.tombstone_retention.is_zero() {
            return Err(zero("tombstone_retention"));
        }
        // Longer is for ever, and would overflow the clock.
        self.busy_wait = self.busy_wait.min(FOR_EVER);
        self.poll_interval = self.poll_interval.min(FOR_EVER);
        let bad = |why: &str| {
            let words = format!("the database path {:?} {why}", self.path);
            Err(StoreError::new(StoreErrorKind::InvalidInput, words))
        };
        match self.path.to_str() {
            None => return bad("is not UTF-8, which SQLite's driver needs"),
            Some("") => return bad("is empty"),
            Some(":memory:") => {
                return bad("means a private database; use the memory store instead");
            }
            Some(path) if path.contains('\0') => return bad("holds a NUL byte"),
            Some(_) => {}
        }
        // A relative path would follow the process's working directory, and
        // "file:…" would be a URI to SQLite.
        self.path = std::path::absolute(&self.path).map_err(|e| {
            let words = format!("the database path {:?} cannot be made absolute", self.path);
            StoreError::with_source(StoreErrorKind::InvalidInput, words, e)
        })?;
        Ok(self)
    }
}
