//! A look at the real file: its settings, its disk, and what follows.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lease_core::{Finding, Severity, Ttl};
use sqlx::sqlite::SqliteConnection;
use sqlx::{query_as, query_scalar};

use crate::sql;

const MIB: u64 = 1 << 20;
/// A write-ahead log larger than this is not being written back.
const LARGE_LOG: u64 = 64 * MIB;
const LITTLE_SPACE: u64 = 256 * MIB;
const NO_SPACE: u64 = 16 * MIB;
/// Readings of one clock do not differ by more, unless the machine is very
/// busy.
const SAME_CLOCK: Duration = Duration::from_millis(50);

const COUNTS: &str = "\
    SELECT (SELECT count(*) FROM lease_keys), (SELECT count(*) FROM lease_tombstones)";

/// Rows that the store would refuse.
const FOREIGN_ROWS: &str = "\
    SELECT count(*) FROM lease_keys WHERE mark NOT BETWEEN 1 AND 9007199254740991 \
    OR token NOT BETWEEN 1 AND mark OR length(owner) <> 16 OR standing NOT BETWEEN 0 AND 2 \
    OR (owner IS NULL) + (token IS NULL) + (label IS NULL) + (granted_us IS NULL) \
        + (expires_us IS NULL) + (standing IS NULL) NOT IN (0, 6)";

/// Everything that can be found out without a write.
pub(crate) async fn examine(db: &mut SqliteConnection, path: &Path) -> Vec<Finding> {
    vec![
        journal(db).await,
        synchronous(db).await,
        version(db).await,
        file_system(path),
        space(path),
        log_size(path),
        clock(db).await,
        integrity(db).await,
        rows(db).await,
        counts(db).await,
    ]
}

fn unknown(what: &str, why: &str, error: impl std::fmt::Display) -> Finding {
    Finding::new(
        Severity::Note,
        format!("{what}: could not be found out ({error})"),
        why,
    )
}

async fn journal(db: &mut SqliteConnection) -> Finding {
    let why = "write-ahead logging lets readers and the writer work side by side";
    match query_scalar::<_, String>("PRAGMA journal_mode")
        .fetch_one(db)
        .await
    {
        Ok(mode) if mode.eq_ignore_ascii_case("wal") => {
            Finding::new(Severity::Healthy, "journal_mode: wal", why)
        }
        Ok(mode) => Finding::new(Severity::Critical, format!("journal_mode: {mode}"), why)
            .advice("restart the programs that use the file, so that they switch it back to wal"),
        Err(error) => unknown("journal_mode", why, error),
    }
}

async fn synchronous(db: &mut SqliteConnection) -> Finding {
    let why = "with FULL (2) a grant is on the disk before it is answered, so it survives a \
               loss of power";
    match query_scalar::<_, i64>("PRAGMA synchronous")
        .fetch_one(db)
        .await
    {
        Ok(level) if level >= 2 => {
            Finding::new(Severity::Healthy, format!("synchronous: {level}"), why)
        }
        Ok(level) => Finding::new(Severity::Critical, format!("synchronous: {level}"), why)
            .advice("upgrade: this client sets it to FULL itself"),
        Err(error) => unknown("synchronous", why, error),
    }
}

async fn version(db: &mut SqliteConnection) -> Finding {
    let why = "the store brings its own SQLite; another copy of it in the same process must not \
               open the same file, or closing one drops the locks of the other";
    match query_scalar::<_, String>("SELECT sqlite_version()")
        .fetch_one(db)
        .await
    {
        Ok(version) => Finding::new(Severity::Healthy, format!("SQLite {version}"), why),
        Err(error) => unknown("SQLite", why, error),
    }
}

fn file_system(path: &Path) -> Finding {
    let why = "write-ahead logging needs shared memory and locks between all processes, which \
               only a local file system has";
    let mounts = match std::fs::read_to_string("/proc/self/mounts") {
        Ok(mounts) => mounts,
        Err(error) => return unknown("file system", why, error),
    };
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match file_system_of(&mounts, &real) {
        None => unknown("file system", why, "it is not among the mounts"),
        Some(kind) if is_remote(kind) => Finding::new(
            Severity::Critical,
            format!("file system: {kind}, a network one"),
            why,
        )
        .advice("put the file on a local disk; for several hosts use a server (Postgres, Redis)"),
        Some(kind @ ("tmpfs" | "ramfs")) => Finding::new(
            Severity::Warning,
            format!("file system: {kind}, in memory"),
            "grants and marks are gone after a restart of the machine",
        )
        .advice("put the file on a disk"),
        Some(kind) => Finding::new(
            Severity::Healthy,
            format!("file system: {kind}, local"),
            why,
        ),
    }
}

fn is_remote(kind: &str) -> bool {
    const REMOTE: [&str; 15] = [
        "9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "gpfs", "lustre", "ncpfs", "nfs",
        "nfs4", "ocfs2", "smb3", "smbfs",
    ];
    REMOTE.contains(&kind) || kind == "virtiofs" || kind.starts_with("fuse.")
}

/// The type of the file system that `path` is on. Of two on the same place the
/// later one is the visible one.
fn file_system_of<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ');
            let (_device, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
            let place = place.replace("\\040", " ").replace("\\011", "\t");
            let place = place.replace("\\134", "\\");
            path.starts_with(&place)
                .then(|| (Path::new(&place).components().count(), kind))
        })
        .max_by_key(|(depth, _)| *depth)
        .map(|(_, kind)| kind)
}

#[cfg(unix)]
fn space(path: &Path) -> Finding {
    let why = "on a full disk nothing can be acquired, renewed or released";
    let folder = path.parent().unwrap_or(path);
    let free = match rustix::fs::statvfs(folder) {
        Ok(stat) => stat.f_bavail.saturating_mul(stat.f_frsize),
        Err(error) => return unknown("free space", why, error),
    };
    let severity = match free {
        0..NO_SPACE => Severity::Critical,
        NO_SPACE..LITTLE_SPACE => Severity::Warning,
        _ => Severity::Healthy,
    };
    let finding = Finding::new(severity, format!("free space: {} MiB", free / MIB), why);
    match severity {
        Severity::Healthy => finding,
        _ => finding.advice("free some space on the disk"),
    }
}

#[cfg(not(unix))]
fn space(_path: &Path) -> Finding {
    unknown(
        "free space",
        "on a full disk nothing can be acquired",
        "not on this system",
    )
}

fn log_size(path: &Path) -> Finding {
    let why = "the log is written back into the database while nobody reads an old state of it";
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let size = match std::fs::metadata(&log) {
        Ok(file) => file.len(),
        Err(error) => return unknown("write-ahead log", why, error),
    };
    let what = format!("write-ahead log: {} KiB", size / 1024);
    if size < LARGE_LOG {
        return Finding::new(Severity::Healthy, what, why);
    }
    Finding::new(Severity::Warning, what, why)
        .advice("look for a program that keeps a read transaction on the file open")
}

async fn clock(db: &mut SqliteConnection) -> Finding {
    let why = "grants expire by SQLite's clock, the machine's wall clock: a step of it forward \
               ends grants early, one back makes them last longer";
    let wall = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        i64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
    };
    let before = wall();
    let store: i64 = match query_scalar(sql::NOW).fetch_one(db).await {
        Ok(store) => store,
        Err(error) => return unknown("clock", why, error),
    };
    let after = wall();
    let off = (before - store).max(store - after).max(0);
    let off = Duration::from_micros(u64::try_from(off).unwrap_or(0));
    if off <= SAME_CLOCK {
        return Finding::new(Severity::Healthy, "clock: SQLite's is this machine's", why)
            .advice("let the time service slew the clock, never step it");
    }
    Finding::new(
        Severity::Warning,
        format!("clock: SQLite's is {off:?} off"),
        why,
    )
    .advice("see whether the clock was just stepped")
}

async fn integrity(db: &mut SqliteConnection) -> Finding {
    let why = "a damaged table loses grants and marks";
    for check in [
        "PRAGMA quick_check('lease_keys')",
        "PRAGMA quick_check('lease_tombstones')",
    ] {
        match query_scalar::<_, String>(check).fetch_one(&mut *db).await {
            Ok(answer) if answer == "ok" => {}
            Ok(answer) => {
                return Finding::new(Severity::Critical, format!("integrity: {answer}"), why)
                    .advice("stop the programs, restore a backup or use `sqlite3 .recover`");
            }
            Err(error) => return unknown("integrity", why, error),
        }
    }
    Finding::new(
        Severity::Healthy,
        "integrity: quick_check of our tables is ok",
        why,
    )
}

async fn rows(db: &mut SqliteConnection) -> Finding {
    let why = "a row that the store did not write is refused, and its key with it";
    match query_scalar::<_, i64>(FOREIGN_ROWS).fetch_one(db).await {
        Ok(0) => Finding::new(Severity::Healthy, "rows: all are the store's own", why),
        Ok(n) => Finding::new(
            Severity::Critical,
            format!("rows: {n} are not the store's own"),
            why,
        )
        .advice("inspect them in lease_keys; repair or delete them"),
        Err(error) => unknown("rows", why, error),
    }
}

async fn counts(db: &mut SqliteConnection) -> Finding {
    let why = "keys stay for ever, since their marks must; tombstones go by themselves";
    match query_as::<_, (i64, i64)>(COUNTS).fetch_one(db).await {
        Ok((keys, tombstones)) => Finding::new(
            Severity::Healthy,
            format!("{keys} keys, {tombstones} tombstones"),
            why,
        ),
        Err(error) => unknown("keys", why, error),
    }
}

/// What one durable write says about a lease of `ttl`.
pub(crate) fn latency(write: Duration, ttl: Ttl) -> Finding {
    let why = "a renewal that takes long leaves the holder little of its TTL";
    let what = format!("one durable write: {write:.1?}, for a TTL of {ttl}");
    let advice = "take a longer TTL, a faster disk, or fewer other writers on the file";
    if write >= ttl.get() / 3 {
        Finding::new(Severity::Critical, what, why).advice(advice)
    } else if write >= ttl.get() / 10 {
        Finding::new(Severity::Warning, what, why).advice(advice)
    } else {
        Finding::new(Severity::Healthy, what, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_and_latest_mount_counts() {
        let mounts = "/dev/a / ext4 rw 0 0\nsrv:/x /mnt/my\\040nfs nfs4 rw 0 0\n\
                      tmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp xfs rw 0 0\nbroken\n";
        let of = |path| file_system_of(mounts, Path::new(path));
        assert_eq!(of("/var/x.db"), Some("ext4"));
        assert_eq!(of("/mnt/my nfs/x.db"), Some("nfs4"));
        assert_eq!(of("/mnt/my nfs2/x.db"), Some("ext4"));
        assert_eq!(of("/tmp/x.db"), Some("xfs"));
        assert!(is_remote("nfs4") && is_remote("fuse.sshfs") && !is_remote("xfs"));
    }

    #[test]
    fn a_slow_disk_is_judged_by_the_ttl() {
        let ttl = Ttl::new(Duration::from_secs(1)).unwrap();
        let severity = |ms| latency(Duration::from_millis(ms), ttl).severity;
        assert_eq!(severity(5), Severity::Healthy);
        assert_eq!(severity(150), Severity::Warning);
        assert_eq!(severity(400), Severity::Critical);
    }
}
