//! Limits that a role, a database or the server sets for every session.

use std::time::Duration;

use lease_core::Finding;

use super::commit::whence;
use super::server::Settings;
use super::{Facts, healthy, note, unknown, warning};

pub(super) fn judge(settings: &Settings, facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Of these the store's sessions have their own.
    let own = "the store's own sessions have another; transactions of yours that take part in a \
               lease (a fenced write) have this one, and are rolled back by it";
    for name in ["statement_timeout", "lock_timeout"] {
        findings.push(limit(settings, facts, name, own, false));
    }
    let idle = "the store's own sessions are never idle in a transaction; one of yours that is, in \
                the middle of a fenced write, is ended by it and rolled back";
    let name = "idle_in_transaction_session_timeout";
    findings.push(limit(settings, facts, name, idle, false));
    if settings.get("transaction_timeout").is_ok() {
        let all = "it ends the session of any transaction that is longer, the store's too: a \
                   short one makes outcomes unknown when the server is slow";
        findings.push(limit(settings, facts, "transaction_timeout", all, true));
    }
    findings
}

fn limit(settings: &Settings, facts: &Facts, name: &str, why: &str, ours: bool) -> Finding {
    let (ms, setting) = match (settings.number(name), settings.get(name)) {
        (Ok(ms), Ok(setting)) => (ms, setting),
        (Err(refusal), _) | (_, Err(refusal)) => return unknown(name, why, refusal),
    };
    if ms == 0 {
        return healthy(format!("{name}: none"), why);
    }
    let time = Duration::from_millis(ms.unsigned_abs());
    let what = format!("{name}: {time:?}, by {}", whence(&setting.source));
    if ours && time < facts.ttl.get() / 6 {
        warning(what, why).advice(format!("ALTER ROLE … SET {name} TO 0 for the store's role"))
    } else if time < facts.ttl.get() {
        note(what, why)
            .advice("know it where you write under a lease, or set another for that role")
    } else {
        healthy(what, why)
    }
}
