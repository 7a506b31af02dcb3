//! Connections of the store's own: never borrowed from a pool that the
//! application can exhaust.

use std::fs::{File, FileType, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use lease_core::{StoreError, StoreErrorKind};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection as _, query, query_scalar};

use crate::errors::{self, Phase};
use crate::schema;

/// Why something did not work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Somebody else holds a lock; without effect, worth asking again.
    Busy(sqlx::Error),
    /// Asking again at once is of no use.
    Final(StoreError),
}

impl Failure {
    pub(crate) fn new(phase: Phase, doing: &str, error: sqlx::Error) -> Self {
        if errors::is_busy(&error) {
            Self::Busy(error)
        } else {
            Self::Final(errors::classify(phase, doing, error))
        }
    }

    /// The caller's error once it waits no longer.
    pub(crate) fn into_error(self, waited: Duration) -> StoreError {
        match self {
            Self::Busy(error) => StoreError::with_source(
                StoreErrorKind::Unavailable,
                format!(
                    "another connection held the database's lock for {waited:?}; look for a long \
                     write transaction or an EXCLUSIVE lock, or raise busy_wait"
                ),
                error,
            ),
            Self::Final(error) => error,
        }
    }
}

/// A pause between two tries for a lock: short, since SQLite's own growing
/// pauses starve, and random, so that many processes do not march in step.
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_micros(rand::random_range(500..5_000))).await;
}

/// An open connection and the file that it has open.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) db: SqliteConnection,
    file: Option<FileId>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Reader,
}

impl Connection {
    /// Opens the file, makes what is missing, and waits for locks until
    /// `give_up_at`.
    pub(crate) async fn open(
        path: &Path,
        role: Role,
        give_up_at: Instant,
    ) -> Result<Self, StoreError> {
        let started = Instant::now();
        let turn_until = turn_until(give_up_at);
        loop {
            match Self::try_open(path, role, turn_until).await {
                Ok(connection) => return Ok(connection),
                Err(Failure::Busy(_)) if Instant::now() < give_up_at => pause().await,
                Err(failure) => return Err(failure.into_error(started.elapsed())),
            }
        }
    }

    /// As [`open`](Self::open), without waiting for the database's locks: only
    /// for its [turn](turn_until).
    pub(crate) async fn try_open(
        path: &Path,
        role: Role,
        turn_until: Instant,
    ) -> Result<Self, Failure> {
        check_place(path)?;
        let _turn = Turn::take(path, turn_until).await;
        let doing = format!("opening {path:?}");
        let db = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .busy_timeout(Duration::ZERO)
            .thread_name(|id| format!("lease-sqlite-{id}"))
            .disable_statement_logging()
            .connect()
            .await
            .map_err(|e| Failure::new(Phase::NoEffect, &doing, e))?;
        let mut connection = Self {
            db,
            file: FileId::of(path),
        };
        match prepare(&mut connection.db, role, &doing).await {
            Ok(()) => Ok(connection),
            Err(failure) => {
                connection.close().await;
                Err(failure)
            }
        }
    }

    /// Whether `path` still names the file that this connection has open.
    /// After somebody deleted or replaced it, others lease in another file.
    pub(crate) fn is_of(&self, path: &Path) -> bool {
        self.file == FileId::of(path)
    }

    /// Closes it, which rolls back whatever is open.
    pub(crate) async fn close(self) {
        if let Err(error) = self.db.close().await {
            tracing::debug!(%error, "closing a connection failed");
        }
    }
}

/// The longest wait for the turn to open.
const TURN_WAIT: Duration = Duration::from_millis(300);

/// Until when somebody who gives up at `give_up_at` waits for the turn, over all
/// tries: most of the time is left to go on without it.
pub(crate) fn turn_until(give_up_at: Instant) -> Instant {
    let now = Instant::now();
    now + TURN_WAIT.min(give_up_at.saturating_duration_since(now) / 2)
}

/// The turn to open a database in its folder, an advisory lock on the folder
/// itself.
///
/// Many processes that open a new file at once get in each other's way: the
/// switch to write-ahead logging needs the file for itself and does not wait,
/// and every other look at the file spoils it. In turns they are up several
/// times sooner. That is all: whoever can read the folder can lock it, for
/// reasons of their own and for ever, so after a while it goes without.
struct Turn(
    // Held, not read: closing it ends the turn.
    #[expect(dead_code)] Option<File>,
);

impl Turn {
    async fn take(path: &Path, until: Instant) -> Self {
        let Some(folder) = path.parent().and_then(|folder| File::open(folder).ok()) else {
            return Self(None);
        };
        loop {
            match folder.try_lock() {
                Ok(()) => return Self(Some(folder)),
                Err(TryLockError::WouldBlock) if Instant::now() < until => pause().await,
                // Others take long, or folders cannot be locked on this system.
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => return Self(None),
            }
        }
    }
}

/// Tells the usual mistakes apart, which to SQLite all are "unable to open",
/// and opens nothing: a look at a device or a pipe may already do harm.
fn check_place(path: &Path) -> Result<(), Failure> {
    let refuse = |words: String| Err(Failure::Final(StoreError::refusing(words)));
    match kind_of(path)? {
        Some(kind) if kind.is_dir() => {
            return refuse(format!("{path:?} is a folder; name a file in it"));
        }
        Some(kind) if !kind.is_file() => {
            return refuse(format!(
                "{path:?} is a device, pipe or socket and was left as it is; name a regular file"
            ));
        }
        _ => {}
    }
    // SQLite keeps them beside the file itself, not beside a link to it.
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    for suffix in ["-journal", "-wal", "-shm"] {
        let mut companion = real.as_os_str().to_owned();
        companion.push(suffix);
        if kind_of(Path::new(&companion))?.is_some_and(|kind| !kind.is_file()) {
            return refuse(format!(
                "{companion:?}, which belongs to the database of that name, is no regular file; \
                 remove it or name another database"
            ));
        }
    }
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    match kind_of(folder)? {
        Some(kind) if kind.is_dir() => Ok(()),
        Some(_) => refuse(format!(
            "{folder:?} is no folder, so no database can be in it; name another"
        )),
        None => refuse(format!(
            "the folder {folder:?} of the database does not exist; create it"
        )),
    }
}

/// What is at `path`, beyond symbolic links, if anything.
fn kind_of(path: &Path) -> Result<Option<FileType>, Failure> {
    use std::io::ErrorKind::{InvalidFilename, NotADirectory, NotFound, PermissionDenied};
    let error = match std::fs::metadata(path) {
        Ok(there) => return Ok(Some(there.file_type())),
        Err(error) => error,
    };
    let (kind, advice) = match error.kind() {
        NotFound | NotADirectory => return Ok(None),
        PermissionDenied => (
            StoreErrorKind::Refusing,
            "let this user search the folders on the way to it",
        ),
        _ if is_circle(&error) => (
            StoreErrorKind::Refusing,
            "its symbolic links go round in a circle",
        ),
        InvalidFilename => (StoreErrorKind::Refusing, "the name is too long"),
        _ => (
            StoreErrorKind::Unavailable,
            "check the disk and its file system",
        ),
    };
    let words = format!("looking at {path:?}: {error}; {advice}");
    Err(Failure::Final(StoreError::with_source(kind, words, error)))
}

#[cfg(unix)]
fn is_circle(error: &std::io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::LOOP)
}

#[cfg(not(unix))]
fn is_circle(_error: &std::io::Error) -> bool {
    false
}

async fn prepare(db: &mut SqliteConnection, role: Role, doing: &str) -> Result<(), Failure> {
    let failed = |error| Failure::new(Phase::NoEffect, doing, error);
    // Looks before it changes anything: a foreign file stays as it is.
    let complete = schema::check(db).await?;
    // SQLite does not wait for locks here, whatever its busy timeout.
    let mode: String = query_scalar("PRAGMA journal_mode = WAL")
        .fetch_one(&mut *db)
        .await
        .map_err(failed)?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(Failure::Final(StoreError::refusing(format!(
            "the database cannot be switched to write-ahead logging (it stays in {mode:?} mode); \
             put it on a local file system with shared memory"
        ))));
    }
    // A grant is on the disk before it is answered; `fullfsync` says so to
    // systems whose fsync alone does not mean it.
    for pragma in [
        "PRAGMA synchronous = FULL",
        "PRAGMA fullfsync = ON",
        "PRAGMA checkpoint_fullfsync = ON",
        // A log that a long reader made grow shrinks again once it has gone.
        "PRAGMA journal_size_limit = 16777216",
    ] {
        query(pragma).execute(&mut *db).await.map_err(failed)?;
    }
    if !complete {
        schema::create(db).await?;
    }
    if role == Role::Reader {
        query("PRAGMA query_only = ON")
            .execute(&mut *db)
            .await
            .map_err(failed)?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path)
            .ok()
            .map(|file| Self(file.dev(), file.ino()))
    }

    #[cfg(not(unix))]
    fn of(_path: &Path) -> Option<Self> {
        None
    }
}
