//! Fault by fault: the cases that must go red.

mod claims;
mod grants;
mod keys;
mod line;
mod remote;
mod rules;
mod times;

use std::time::Duration;

use lease_core::{CrashRelease, Exclusion, Guarantees, Survives, Ttl, TtlRange};

use crate::fixture::{Plan, SHORT_RETENTION};

/// A broken store and where the suite must catch it.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) plan: Plan,
    pub(crate) red: &'static [&'static str],
}

fn row(name: &'static str, plan: Plan, red: &'static [&'static str]) -> Row {
    Row { name, plan, red }
}

/// All broken stores.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = rules::rows();
    rows.extend(grants::rows());
    rows.extend(keys::rows());
    rows.extend(times::rows());
    rows.extend(claims::rows());
    rows.extend(remote::rows());
    rows.extend(line::rows());
    rows
}

/// Stores that the suite must leave green.
pub(crate) fn faultless() -> Vec<(&'static str, Plan)> {
    vec![
        ("the wrapper", Plan::faultless()),
        (
            "a short retention and a restart",
            Plan {
                retention: SHORT_RETENTION,
                claims: survives_all,
                hooks: true,
                ..Plan::faultless()
            },
        ),
        (
            "an empty start in quarantine",
            Plan {
                claims: quarantined,
                retention: SHORT_RETENTION,
                hooks: true,
                ..Plan::faultless()
            },
        ),
        (
            "narrow limits",
            Plan {
                claims: narrow,
                ..Plan::faultless()
            },
        ),
        ("leases on a queue, with waiters in line", Plan::in_line()),
    ]
}

/// A store that claims whatever cannot be shown.
pub(crate) fn boasting() -> Plan {
    Plan {
        claims: |claims| {
            let all = Survives::NOTHING.restart().data_loss().failover();
            let grace = Duration::from_secs(1);
            claims
                .exclusion(Exclusion::Consensus, all.clock_step())
                .tokens_survive(all.clock_step())
                .crash_release(CrashRelease::SessionLost { grace })
        },
        ..Plan::faultless()
    }
}

fn survives_all(claims: Guarantees) -> Guarantees {
    let all = Survives::NOTHING.restart().data_loss();
    claims
        .exclusion(Exclusion::SinglePrimary, Survives::NOTHING.restart())
        .tokens_survive(all)
}

fn quarantined(claims: Guarantees) -> Guarantees {
    let all = Survives::NOTHING.restart().data_loss();
    claims
        .exclusion(Exclusion::SinglePrimary, all)
        .tokens_survive(all)
}

fn narrow(claims: Guarantees) -> Guarantees {
    let ttl = |ms| Ttl::new(Duration::from_millis(ms)).unwrap_or(Ttl::MIN);
    claims
        .ttl(TtlRange::new(
            ttl(100),
            ttl(86_400_000),
            Duration::from_millis(1),
        ))
        .max_key_bytes(200)
}

fn seconds(claims: Guarantees) -> Guarantees {
    let second = Duration::from_secs(1);
    let min = Ttl::new(second).unwrap_or(Ttl::MIN);
    claims.ttl(TtlRange::new(min, Ttl::MAX, second))
}
