//! A look at the real server: what it does, and what follows for a lease.
//!
//! Over a connection of its own, which neither makes tables nor needs them, so
//! that a store that cannot be used can be looked at. Nothing is written. What the
//! role may not ask is said, and never called sound.

mod ask;
mod commit;
mod connections;
mod rights;
mod server;
mod sessions;
mod standbys;
mod tables;
mod time;
mod vacuum;

use std::fmt::Display;
use std::time::Duration;

use lease_core::{Diagnosis, Finding, Severity, StoreError, Ttl};
use sqlx::postgres::PgConnection;
use tokio::time::timeout;

use crate::address::Address;
use crate::connection::{CONNECTING, Origin};
use crate::layout::Layout;
use crate::names::Names;
use ask::{Asker, Refusal};

/// How the store is configured, for judging the server by it.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The TTL in mind.
    pub(crate) ttl: Ttl,
    pub(crate) layout: &'static Layout,
    pub(crate) names: Names,
    /// The store makes tables that are missing.
    pub(crate) migrate: bool,
    /// How many the store may open.
    pub(crate) connections: usize,
    pub(crate) asynchronous: bool,
}

/// Looks at the server.
///
/// # Errors
/// A server that is out of reach, or that refuses the user or the database.
///
/// # Cancel safety
/// Safe: nothing is written, and the connection is closed.
pub(crate) async fn diagnose(origin: &Origin, facts: &Facts) -> Result<Diagnosis, StoreError> {
    let (mut db, shared) = connect(origin).await?;
    let mut asker = Asker::new(&mut db, origin.response_timeout);
    let settings = server::Settings::ask(&mut asker).await?;
    // From here on it is a session like the store's, if it is one: else the store
    // sets up each transaction.
    let (before, after) = match shared {
        true => (origin.begin(), "; COMMIT"),
        false => (origin.set_up(), ""),
    };
    let asked = "SELECT current_setting('synchronous_commit') AS it";
    let lines = asker.all(format!("{before}; {asked}{after}")).await?;
    let commit = lines.and_then(|lines| lines.into_iter().next_back().ok_or(Refusal::Odd));
    let set_up = commit.as_ref().map(drop).map_err(Clone::clone);
    let latency = time::Latency::measure(&mut asker).await?;
    let clock = time::Clock::ask(&mut asker).await?;
    let look = server::Look::ask(&mut asker).await?;
    let found_standbys = standbys::Standbys::ask(&mut asker).await?;
    let tables = tables::Tables::ask(&mut asker, facts).await?;
    let vacuum = vacuum::Vacuum::ask(&mut asker).await?;
    let room = connections::Room::ask(&mut asker).await?;
    let way = connections::Way::ask(&mut asker).await?;
    // Last: where there are none, the pooler ends the session.
    let transactions = !shared || asker.has_transactions().await?;

    let commit = commit.and_then(|line| line.text("it"));
    let mut findings = server::judge(&settings, &look, &set_up, &Address::of(&origin.connect));
    findings.extend(commit::judge(&commit, &settings, facts));
    findings.extend(standbys::judge(
        &found_standbys,
        &settings,
        &commit,
        &look,
        facts,
    ));
    findings.extend(tables::judge(&tables, &look, facts));
    findings.extend(rights::judge(&tables, &look, facts));
    findings.extend(sessions::judge(&settings, facts));
    findings.extend(vacuum::judge(&vacuum, &tables, &settings));
    findings.push(connections::pooler(shared, transactions));
    findings.extend(connections::judge(&room, &way, facts));
    findings.push(time::clock(&clock));
    findings.push(latency.judge(facts));
    Ok(Diagnosis { findings })
}

/// True if the session is shared with others.
async fn connect(origin: &Origin) -> Result<(PgConnection, bool), StoreError> {
    match timeout(origin.connect_timeout, origin.way.connect(&origin.connect)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(origin.unreached(CONNECTING, error)),
        Err(_) => Err(origin.silent(CONNECTING)),
    }
}

fn healthy(what: impl Into<String>, why: impl Into<String>) -> Finding {
    Finding::new(Severity::Healthy, what, why)
}

fn note(what: impl Into<String>, why: impl Into<String>) -> Finding {
    Finding::new(Severity::Note, what, why)
}

fn warning(what: impl Into<String>, why: impl Into<String>) -> Finding {
    Finding::new(Severity::Warning, what, why)
}

fn critical(what: impl Into<String>, why: impl Into<String>) -> Finding {
    Finding::new(Severity::Critical, what, why)
}

/// Worth knowing, and no promise hangs on it.
fn unknown(what: &str, why: impl Into<String>, reason: impl Display) -> Finding {
    note(format!("{what}: could not be found out ({reason})"), why).advice(LOOK)
}

/// A promise hangs on it: it may hold or not.
fn unchecked(what: &str, why: impl Into<String>, reason: impl Display) -> Finding {
    warning(format!("{what}: could not be checked ({reason})"), why).advice(LOOK)
}

/// How to see more.
const LOOK: &str = "run the doctor as an administrator, or GRANT pg_monitor TO its role";

/// "1 key", "2 keys".
fn counted(number: i64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// A length of time that may be long.
fn shown(seconds: i64) -> String {
    let time = Duration::from_secs(seconds.max(0).unsigned_abs());
    match seconds {
        ..120 => format!("{time:?}"),
        120..7200 => format!("{} minutes", seconds / 60),
        7200..172_800 => format!("{} hours", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
