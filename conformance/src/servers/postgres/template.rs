//! A data folder made once and copied for each server: `initdb` takes a second
//! or more, a copy a fraction of it.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::programs::Programs;
use crate::servers::ServerError;
use crate::servers::account::{Account, give};
use crate::servers::parts::LIMIT;
use crate::servers::tool::{as_account, run, succeed};

/// Raised when what `initdb` is told changes.
const FORMAT: u32 = 1;
/// A machine with much else to do takes long.
const INITDB_LIMIT: std::time::Duration = std::time::Duration::from_secs(120);

/// Makes `data` as `initdb` would.
pub(super) fn copy_to(
    data: &Path,
    programs: &Programs,
    account: Option<Account>,
) -> Result<(), ServerError> {
    let template = template(programs, account)?;
    copy(&template, data, account)
}

/// Copies a data folder. (`cp` shares the blocks of both where the file system
/// can.)
pub(super) fn copy(from: &Path, to: &Path, account: Option<Account>) -> Result<(), ServerError> {
    let mut copy = as_account(Path::new("cp"), account);
    copy.args(["-R", "-p"]).arg(from).arg(to);
    succeed(copy, LIMIT)
}

/// Makes it if this machine has none yet of this version.
fn template(programs: &Programs, account: Option<Account>) -> Result<PathBuf, ServerError> {
    let cache = cache(account)?;
    let template = cache.join(format!("{}-{FORMAT}", version(programs)?));
    if template.is_dir() {
        return Ok(template);
    }
    let failed = |e| ServerError::io(format!("lock {}", cache.display()), e);
    let lock = File::create(cache.join("lock")).map_err(failed)?;
    lock.lock().map_err(failed)?;
    if template.is_dir() {
        return Ok(template);
    }
    // Whole or not there: a test may be killed meanwhile.
    let unfinished = cache.join("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)
            .map_err(|e| ServerError::io(format!("remove {}", unfinished.display()), e))?;
    }
    let mut initdb = as_account(&programs.path("initdb"), account);
    initdb
        .arg("--pgdata")
        .arg(&unfinished)
        .args(["--username", super::ADMIN, "--auth=trust"])
        // The same on every machine, and words that the kit understands.
        .args(["--encoding=UTF8", "--locale=C"])
        // Small: it is copied for every server.
        .args(["--wal-segsize=1", "--no-sync"])
        .env("TZ", "UTC");
    succeed(initdb, INITDB_LIMIT)?;
    fs::rename(&unfinished, &template)
        .map_err(|e| ServerError::io(format!("make {}", template.display()), e))?;
    Ok(template)
}

/// The folder of all templates of one user, who alone may write there.
fn cache(account: Option<Account>) -> Result<PathBuf, ServerError> {
    let user = account.map_or_else(|| rustix::process::geteuid().as_raw(), Account::user);
    let cache = std::env::temp_dir().join(format!("lease-conformance-postgres-{user}"));
    let failed = |e| ServerError::io(format!("make {}", cache.display()), e);
    let owner = |path: &Path| fs::symlink_metadata(path).map(|m| (m.is_dir(), m.uid()));
    let ours = |(is_dir, uid)| is_dir && uid == user;
    if !owner(&cache).is_ok_and(ours) {
        // Made elsewhere and moved, so that it is never seen half made.
        let own = tempfile::Builder::new()
            .prefix("postgres-templates-")
            .tempdir()
            .map_err(failed)?;
        let whole = own.path().join("whole");
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&whole)
            .map_err(failed)?;
        give(&whole, account)?;
        // Nothing happens if another test was first.
        let _ = fs::rename(&whole, &cache);
    }
    if !ours(owner(&cache).map_err(failed)?) {
        let other = std::io::Error::other("it belongs to another user; remove it");
        return Err(ServerError::io(format!("use {}", cache.display()), other));
    }
    Ok(cache)
}

/// Such as `15.18-debian-15-18-0-deb12u1`: another build may differ.
fn version(programs: &Programs) -> Result<String, ServerError> {
    let mut ask = as_account(&programs.path("postgres"), None);
    ask.arg("--version");
    let said = run(ask, LIMIT)?.output;
    let words = said.trim().trim_start_matches("postgres (PostgreSQL) ");
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    Ok(words.chars().map(plain).collect())
}
