//! What SQLite's failures mean for a lease.

use lease_core::{StoreError, StoreErrorKind};

/// How far a request had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Before its commit: nothing of it stays.
    NoEffect,
    /// In its commit.
    Commit,
}

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const NO_MEMORY: i32 = 7;
const READ_ONLY: i32 = 8;
const INTERRUPT: i32 = 9;
const IO: i32 = 10;
const CORRUPT: i32 = 11;
const FULL: i32 = 13;
const CANNOT_OPEN: i32 = 14;
const PROTOCOL: i32 = 15;
const SCHEMA: i32 = 17;
const CONSTRAINT: i32 = 19;
const NOT_A_DATABASE: i32 = 26;
/// `SQLITE_READONLY_DBMOVED`.
const MOVED: i32 = READ_ONLY | (4 << 8);

/// SQLite's extended result code, if the failure is SQLite's.
fn extended_code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// Whether somebody else holds a lock that passes: worth asking again.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    extended_code(error).is_some_and(|code| matches!(code & 0xff, BUSY | LOCKED | PROTOCOL))
}

/// Whether the connection must not be used again.
pub(crate) fn spoils_connection(error: &sqlx::Error) -> bool {
    match extended_code(error) {
        None => true,
        Some(code) => matches!(
            code & 0xff,
            IO | CORRUPT | NO_MEMORY | READ_ONLY | CANNOT_OPEN | NOT_A_DATABASE
        ),
    }
}

/// Puts a failure into the contract's words.
pub(crate) fn classify(phase: Phase, doing: &str, error: sqlx::Error) -> StoreError {
    let (kind, advice) = match extended_code(&error) {
        Some(code) if phase == Phase::NoEffect && hides_cause(code) && lacks_files() => {
            (StoreErrorKind::Unavailable, MORE_FILES)
        }
        Some(code) => by_code(phase, code),
        None => by_driver(phase, &error),
    };
    StoreError::with_source(kind, format!("{doing}: {error}; {advice}"), error)
}

const MORE_FILES: &str = "no more files can be opened; raise the limit of open files \
    (`ulimit -n`, `LimitNOFILE`, `fs.file-max`) or close some";

/// Whether SQLite answers so as well when the operating system lets it open no
/// more files. It does not pass the system's own error on.
fn hides_cause(code: i32) -> bool {
    code == CANNOT_OPEN || code == READ_ONLY
}

/// Whether files cannot be opened at the moment. Never tried with the database
/// itself: to close it drops the locks that this process has on it.
fn lacks_files() -> bool {
    // As many as an open database has, with its log, its shared memory, a
    // journal and the folder: SQLite has closed those that it got, and others
    // close theirs at any time.
    let mut open = Vec::new();
    for _ in 0..4 {
        match std::io::pipe() {
            Ok(both_ends) => open.push(both_ends),
            Err(error) => return is_shortage(&error),
        }
    }
    false
}

/// Whether the operating system is short of what opening a file takes.
#[cfg(unix)]
fn is_shortage(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

#[cfg(not(unix))]
fn is_shortage(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::OutOfMemory
}

const MORE_THREADS: &str = "raise the limit of processes and threads (`ulimit -u`, `pids.max`, \
    `TasksMax`) or of memory, or end some";

/// The operating system gave no thread.
pub(crate) fn no_thread(error: std::io::Error) -> StoreError {
    let words = format!("the operating system gave no thread: {error}; {MORE_THREADS}");
    StoreError::with_source(StoreErrorKind::Unavailable, words, error)
}

fn by_code(phase: Phase, code: i32) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Refusing, Unavailable, UnknownOutcome};
    match (phase, code & 0xff) {
        // A lock that was refused and a disk that took no more frames both
        // leave the commit undone.
        (_, BUSY | LOCKED | PROTOCOL) => (
            Unavailable,
            "another connection holds the database's lock; try again, and keep write transactions short",
        ),
        (_, FULL) => (Refusing, "free some space on the disk"),
        (Phase::Commit, _) => (
            UnknownOutcome,
            "the commit may or may not have reached the disk; check the disk and its file system",
        ),
        (_, NO_MEMORY | INTERRUPT | SCHEMA) => (Unavailable, "try again"),
        (_, IO) => (Unavailable, "check the disk and its file system"),
        (_, READ_ONLY) if code == MOVED => (
            Unavailable,
            "the database file was moved or deleted; try again",
        ),
        (_, READ_ONLY) => (
            Refusing,
            "make the database file, its -wal and -shm files and their folder writable",
        ),
        (_, CANNOT_OPEN) => (
            Refusing,
            "check that the folder exists and that this user may write in it",
        ),
        (_, NOT_A_DATABASE) => (
            Refusing,
            "the file is not an SQLite database and was left as it is; name another file",
        ),
        (_, CORRUPT) => (
            Refusing,
            "the database is damaged; restore it from a backup or recover it with `sqlite3 .recover`",
        ),
        (_, CONSTRAINT) => (
            Refusing,
            "a constraint or trigger that is not the store's own refuses the change; remove it",
        ),
        _ => (
            Refusing,
            "the tables are not as the store made them; see whether another program changed them",
        ),
    }
}

fn by_driver(phase: Phase, error: &sqlx::Error) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Refusing, Unavailable, UnknownOutcome};
    match (phase, error) {
        (Phase::Commit, _) => (UnknownOutcome, "the connection was lost in the commit"),
        (
            _,
            sqlx::Error::ColumnDecode { .. }
            | sqlx::Error::ColumnNotFound(_)
            | sqlx::Error::Decode(_)
            | sqlx::Error::Configuration(_)
            | sqlx::Error::RowNotFound,
        ) => (Refusing, "the tables hold what the store did not write"),
        // Of all that the driver does by itself, only this can fail.
        (_, sqlx::Error::Io(_)) => (Unavailable, MORE_THREADS),
        _ => (Unavailable, "try again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_failed_is_unknown_unless_it_certainly_did_nothing() {
        use StoreErrorKind::{Refusing, Unavailable, UnknownOutcome};
        let kind = |phase, code| by_code(phase, code).0;
        // SQLITE_IOERR_FSYNC, SQLITE_BUSY_SNAPSHOT, SQLITE_CANTOPEN_ISDIR.
        assert_eq!(kind(Phase::Commit, 1034), UnknownOutcome);
        assert_eq!(kind(Phase::NoEffect, 1034), Unavailable);
        assert_eq!(kind(Phase::Commit, 517), Unavailable);
        assert_eq!(kind(Phase::Commit, FULL), Refusing);
        assert_eq!(kind(Phase::NoEffect, 526), Refusing);
        assert_eq!(kind(Phase::NoEffect, MOVED), Unavailable);
        assert_eq!(kind(Phase::NoEffect, READ_ONLY), Refusing);
        assert_eq!(kind(Phase::NoEffect, NOT_A_DATABASE), Refusing);
        assert_eq!(kind(Phase::NoEffect, 1), Refusing);
        let crashed = sqlx::Error::WorkerCrashed;
        assert_eq!(by_driver(Phase::Commit, &crashed).0, UnknownOutcome);
        assert_eq!(by_driver(Phase::NoEffect, &crashed).0, Unavailable);
        assert!(spoils_connection(&crashed));
    }
}
