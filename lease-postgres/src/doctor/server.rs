//! Which server it is, and whether it takes changes and keeps them.

use std::collections::BTreeMap;

use lease_core::{Finding, StoreError};

use super::ask::{Answer, Asker, Refusal};
use super::{critical, healthy, note, unchecked, unknown, warning};
use crate::address::Address;
use crate::names::quoted;

/// The versions that the tests run with.
const TESTED: i64 = 15;
const OLDEST: i64 = 12;
/// The server stops taking changes at 2^31 less three millions.
const WRAPAROUND_NEAR: i64 = 1_500_000_000;
const WRAPAROUND_HERE: i64 = 2_000_000_000;

/// Settings as a session of this role gets them, before the store sets its own.
#[derive(Debug)]
pub(super) struct Settings(Answer<BTreeMap<String, Setting>>);

#[derive(Debug)]
pub(super) struct Setting {
    /// In the unit of `pg_settings`: milliseconds, where it is a time.
    pub(super) value: String,
    /// Where it comes from: `user`, `database`, `configuration file` …
    pub(super) source: String,
}

impl Settings {
    pub(super) async fn ask(asker: &mut Asker<'_>) -> Result<Self, StoreError> {
        let lines = asker
            .all(
                "SELECT name::text AS name, setting::text AS value, source::text AS source \
                 FROM pg_catalog.pg_settings WHERE name IN ('server_version', \
                 'server_version_num', 'fsync', 'full_page_writes', 'transaction_read_only', \
                 'synchronous_commit', 'synchronous_standby_names', 'autovacuum', 'track_counts', \
                 'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', \
                 'transaction_timeout')",
            )
            .await?;
        let read = |lines: Vec<super::ask::Line>| {
            let one = |line: &super::ask::Line| {
                let setting = Setting {
                    value: line.text("value")?,
                    source: line.text("source")?,
                };
                Ok((line.text("name")?, setting))
            };
            lines.iter().map(one).collect()
        };
        Ok(Self(lines.and_then(read)))
    }

    pub(super) fn get(&self, name: &str) -> Answer<&Setting> {
        let all = self.0.as_ref().map_err(Clone::clone)?;
        all.get(name).ok_or(Refusal::Odd)
    }

    pub(super) fn number(&self, name: &str) -> Answer<i64> {
        self.get(name)?.value.parse().map_err(|_| Refusal::Odd)
    }
}

/// What else decides at once.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) standby: Answer<bool>,
    pub(super) role: Answer<String>,
    database: Answer<String>,
    encoding: Answer<String>,
    age: Answer<i64>,
}

impl Look {
    pub(super) async fn ask(asker: &mut Asker<'_>) -> Result<Self, StoreError> {
        let line = asker
            .one(
                "SELECT pg_is_in_recovery() AS standby, current_user::text AS role, \
                 current_database()::text AS database, current_setting('server_encoding') AS encoding, \
                 (SELECT greatest(age(datfrozenxid), mxid_age(datminmxid))::bigint \
                    FROM pg_database WHERE datname = current_database()) AS age",
            )
            .await?;
        let line = line.as_ref().map_err(Clone::clone);
        Ok(Self {
            standby: line.clone().and_then(|line| line.flag("standby")),
            role: line.clone().and_then(|line| line.text("role")),
            database: line.clone().and_then(|line| line.text("database")),
            encoding: line.clone().and_then(|line| line.text("encoding")),
            age: line.and_then(|line| line.number("age")),
        })
    }

    /// Its role's name, for SQL that is shown.
    pub(super) fn role(&self) -> String {
        self.role.clone().unwrap_or_else(|_| "ROLE".to_owned())
    }
}

pub(super) fn judge(
    settings: &Settings,
    look: &Look,
    set_up: &Answer<()>,
    address: &Address,
) -> Vec<Finding> {
    let mut findings = vec![version(settings, look, address), role(look)];
    if let Err(refusal) = set_up {
        findings.push(
            critical(
                format!("session: could not be set up ({refusal})"),
                "the store sets its sessions up before it uses them",
            )
            .advice("use Postgres 12 or later, and let nothing in between refuse SET"),
        );
    }
    findings.push(writable(settings, look));
    findings.push(on_the_disk(settings));
    findings.push(pages(settings));
    findings.extend(encoding(look));
    findings.push(wraparound(look));
    findings
}

fn version(settings: &Settings, look: &Look, address: &Address) -> Finding {
    let why = format!(
        "the store is made for Postgres {OLDEST} and later; it is tested with version {TESTED}"
    );
    let (name, number) = match (
        settings.get("server_version"),
        settings.number("server_version_num"),
    ) {
        (Ok(name), Ok(number)) => (&name.value, number / 10_000),
        (Err(refusal), _) | (_, Err(refusal)) => return unchecked("server", why, refusal),
    };
    let mut what = format!("server: Postgres {name} at {address}");
    for (which, name) in [("database", &look.database), ("role", &look.role)] {
        if let Ok(name) = name {
            what += &format!(", {which} {}", quoted(name));
        }
    }
    if number < OLDEST {
        critical(what, why).advice("upgrade the server")
    } else if number == TESTED {
        healthy(what, why)
    } else {
        note(what, why)
    }
}

fn role(look: &Look) -> Finding {
    let why = "leases are granted by the primary alone";
    match &look.standby {
        Ok(false) => healthy("role: primary", why),
        Ok(true) => critical("role: standby", why)
            .advice("name the primary in the URL; if this one is to be it, promote it"),
        Err(refusal) => unchecked("role", why, refusal),
    }
}

fn writable(settings: &Settings, look: &Look) -> Finding {
    let why = "a grant is a write";
    let read_only = match settings.get("transaction_read_only") {
        Ok(setting) => setting.value == "on",
        Err(refusal) => return unchecked("writes", why, refusal),
    };
    match (read_only, look.standby == Ok(true)) {
        (false, _) => healthy("writes: the server takes them", why),
        (true, true) => {
            critical("writes: a standby takes none", why).advice("name the primary in the URL")
        }
        (true, false) => critical("writes: refused, transactions are read-only", why).advice(
            "see where default_transaction_read_only is set: the server, the database or the role; \
             if somebody set it because the disk is full, make room first",
        ),
    }
}

fn on_the_disk(settings: &Settings) -> Finding {
    let why = "a grant that is answered must be on the disk, or a crash gives its key to another";
    match settings.get("fsync").map(|setting| setting.value.as_str()) {
        Ok("on") => healthy("fsync: on", why),
        Ok(other) => critical(format!("fsync: {other}"), why)
            .advice("set fsync = on; without it a crash can also ruin the whole database"),
        Err(refusal) => unchecked("fsync", why, refusal),
    }
}

fn pages(settings: &Settings) -> Finding {
    let why = "a page of which a crash wrote one half cannot be repaired without it: rows of leases \
               may come back older, or not at all";
    match settings.get("full_page_writes").map(|s| s.value.as_str()) {
        Ok("on") => healthy("full_page_writes: on", why),
        Ok(other) => warning(format!("full_page_writes: {other}"), why)
            .advice("set it on, unless the file system writes whole pages or none (ZFS)"),
        Err(refusal) => unchecked("full_page_writes", why, refusal),
    }
}

fn encoding(look: &Look) -> Option<Finding> {
    let why = "keys are Unicode, and have to come back as they were";
    match &look.encoding {
        Ok(name) if name == "UTF8" => Some(healthy("encoding: UTF8", why)),
        Ok(name) => Some(
            critical(format!("encoding: {name}"), why)
                .advice("create a database with ENCODING 'UTF8' and name it in the URL"),
        ),
        Err(_) => None,
    }
}

fn wraparound(look: &Look) -> Finding {
    let why = "at about 2.1 billion transactions since the oldest one that was not frozen the \
               server takes no more changes, and every lease ends at its deadline";
    let age = match look.age {
        Ok(age) => age,
        Err(ref refusal) => return unknown("wraparound", why, refusal),
    };
    let what = format!("wraparound: {} million transactions old", age / 1_000_000);
    let advice = "let VACUUM come through: see what holds it back (long transactions, prepared \
                  transactions, replication slots)";
    match age {
        WRAPAROUND_HERE.. => critical(what, why).advice(advice),
        WRAPAROUND_NEAR.. => warning(what, why).advice(advice),
        _ => healthy(what, why),
    }
}
