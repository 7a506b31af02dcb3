//! A look at the real server: what it does, and what follows for a lease.
//!
//! First everything is asked ([`Seen`]), in as few round trips as there may be,
//! then judged by functions without a connection. Nothing is written: even the
//! probes of rights are requests that the server turns down for another reason
//! when the right is there.

mod account;
mod ask;
mod birth;
mod clients;
pub(crate) mod cluster;
mod glance;
mod info;
mod memory;
mod merge;
mod obstacles;
mod persistence;
mod probes;
mod replication;
mod rights;
pub(crate) mod sentinel;
mod server;
mod settings;
mod time;
mod together;

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::time::Duration;

use lease_core::{Diagnosis, Finding, Severity, StoreError, Ttl};
use redis::aio::ConnectionLike;

use crate::errors::{Phase, classify};
use crate::names::Names;
use account::User;
use ask::{Answer, Questions};
use birth::Birth;
pub(crate) use glance::{Glance, Standing};
use info::Info;
use probes::Tried;
use rights::Rights;
use settings::Settings;
use time::{Clock, Latency};

/// How the store is configured, for judging the server by it.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The TTL in mind.
    pub(crate) ttl: Ttl,
    pub(crate) names: Names,
    /// How long grants are refused after a restart.
    pub(crate) quarantine: Option<Ttl>,
    /// How many replicas a grant waits for, and for how long.
    pub(crate) wait: Option<(u32, Duration)>,
    /// Whether the user says that the server loses nothing in a restart.
    pub(crate) durable: bool,
    /// How long the mark of an idle key is kept.
    pub(crate) mark_retention: Duration,
    /// Sentinels say which server is the primary.
    pub(crate) sentinels: bool,
    /// Of a node of a cluster: a slot that it has.
    pub(crate) slot: Option<u16>,
    /// For queues, whose scripts are others.
    pub(crate) queues: bool,
}

impl Facts {
    /// A name among ours that stands for nothing.
    fn nobody(&self) -> String {
        match self.slot {
            Some(slot) => self.names.in_slot(slot).0,
            None => self.names.nobody(),
        }
    }

    /// A name that stands beside it, in a cluster too.
    fn birth(&self) -> String {
        match self.slot {
            Some(slot) => self.names.in_slot(slot).1,
            None => self.names.birth(),
        }
    }

    /// What wakes those who wait, and how they listen.
    fn wake_ups(&self) -> (&'static str, &'static str) {
        match self.slot {
            Some(_) => ("SPUBLISH", "SSUBSCRIBE"),
            None => ("PUBLISH", "SUBSCRIBE"),
        }
    }
}

/// What the server said.
#[derive(Debug)]
struct Seen {
    info: Answer<Info>,
    settings: Settings,
    birth: Answer<Birth>,
    clock: Answer<Clock>,
    latency: Latency,
    rights: Rights,
}

/// Looks at the server behind `connection`.
///
/// # Errors
/// Only a server that is out of reach: it does not answer, it still loads its
/// data, a script keeps it busy, or it wants a password.
///
/// # Cancel safety
/// Safe: nothing is written.
pub(crate) async fn diagnose(
    connection: &mut (impl ConnectionLike + Send),
    facts: &Facts,
) -> Result<Diagnosis, StoreError> {
    let seen = Seen::look(connection, facts).await?;
    Ok(Diagnosis {
        findings: judge(&seen, facts),
    })
}

impl Seen {
    async fn look(
        connection: &mut (impl ConnectionLike + Send),
        facts: &Facts,
    ) -> Result<Self, StoreError> {
        let latency = Latency::measure(connection).await?;

        let mut questions = Questions::default();
        let info = questions.put(redis::cmd("INFO"));
        let settings = Settings::ask(&mut questions);
        let birth = Birth::ask(&mut questions, facts.birth());
        let clock = Clock::ask(&mut questions);
        let probes = probes::ask(&mut questions, facts);
        let name = account::ask_name(&mut questions);
        let default = account::ask_default(&mut questions);
        let before = time::wall_us();
        let answers = questions.ask(connection).await?;
        let after = time::wall_us();

        let user = match answers.hear::<String>(name) {
            Ok(name) => User::look(connection, &name, facts).await?,
            Err(_) => User::default(),
        };
        let info: Answer<String> = answers.hear(info);
        Ok(Self {
            latency,
            info: info.map(|text| Info::parse(&text)),
            settings: Settings::hear(&answers, &settings),
            birth: Birth::hear(&answers, birth),
            clock: Clock::hear(&answers, clock, (before, after)),
            rights: Rights {
                tried: Tried::hear(&answers, probes),
                user,
                default: account::default_may_all(&answers, default),
            },
        })
    }
}

/// A server that answers nothing at all for now cannot be looked at. One that
/// refuses a PING for another reason (a disk that fails, a right) can.
async fn reach(connection: &mut (impl ConnectionLike + Send)) -> Result<(), StoreError> {
    let ping = redis::cmd("PING");
    match ping.query_async::<redis::Value>(connection).await {
        Ok(_) => Ok(()),
        Err(error) => match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "LOADING" | "BUSY") | None => {
                Err(classify(Phase::Unsent, "Redis does not answer", error))
            }
            Some(_) => Ok(()),
        },
    }
}

fn judge(seen: &Seen, facts: &Facts) -> Vec<Finding> {
    let (info, settings) = (&seen.info, &seen.settings);
    let obstacles = &seen.rights.tried.obstacles;
    let mut findings = server::judge(info, obstacles, facts);
    findings.extend(persistence::judge(info, settings, obstacles, facts));
    findings.extend(seen.rights.replay(info, facts));
    findings.extend(birth::judge(&seen.birth, &seen.clock, info, facts));
    findings.push(memory::judge(info, obstacles));
    findings.extend(replication::judge(info, settings, obstacles, facts));
    findings.extend(settings.judge());
    findings.extend(clients::judge(info.as_ref().ok(), settings, facts));
    findings.extend(seen.rights.judge(settings, facts));
    findings.extend(time::scripts(settings, facts));
    findings.push(time::clock(&seen.clock));
    findings.push(seen.latency.judge(facts));
    findings
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
    note(format!("{what}: could not be found out ({reason})"), why)
}

/// A promise hangs on it: it may hold or not.
fn unchecked(what: &str, why: impl Into<String>, reason: impl Display) -> Finding {
    warning(format!("{what}: could not be checked ({reason})"), why).advice(LOOK)
}

/// How to see more.
const LOOK: &str = "run the doctor as an administrator, or give its user +info +config|get \
                    +acl|whoami +acl|getuser +acl|dryrun";

/// The server says nothing of it: another version, or another make of server.
const SILENT: &str = "the server does not say";
