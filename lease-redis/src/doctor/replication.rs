//! What a failover does to grants.

use lease_core::Finding;

use super::ask::Answer;
use super::info::Info;
use super::obstacles::{Obstacle, Obstacles};
use super::settings::Settings;
use super::{Facts, SILENT, critical, healthy, note, unchecked, warning};

/// A replica that has not been heard of for longer is not in touch.
const LONG_LAG_S: u64 = 10;

pub(super) fn judge(
    info: &Answer<Info>,
    settings: &Settings,
    obstacles: &Obstacles,
    facts: &Facts,
) -> Vec<Finding> {
    let (info, role) = match info {
        Ok(info) => (Some(info), info.text("role").ok_or(SILENT.to_owned())),
        Err(refusal) => (None, Err(refusal.to_string())),
    };
    let lonely = obstacles.met(Obstacle::Replicas);
    match (info, role) {
        _ if obstacles.met(Obstacle::Replica) => vec![replica()],
        (Some(info), Ok("master")) => primary(info, settings, lonely, facts),
        (_, Ok(_)) => vec![replica()],
        (_, Err(reason)) => {
            let why = "only a primary grants leases, and a failover to one of its replicas \
                       forgets the latest grants";
            let mut findings = vec![unchecked("role", why, reason)];
            findings.extend(lonely.then(|| too_few("min-replicas-to-write: too few replicas")));
            findings
        }
    }
}

fn replica() -> Finding {
    let why = "leases are granted by the primary alone; a replica refuses writes, or takes some \
               that nobody else sees";
    critical("role: a replica", why).advice("name the primary in the URL")
}

fn primary(info: &Info, settings: &Settings, lonely: bool, facts: &Facts) -> Vec<Finding> {
    let replicas = info.replicas();
    let online = replicas.iter().filter(|replica| replica.online).count();
    let online = u64::try_from(online).unwrap_or(u64::MAX);
    let mut findings = vec![failover(online, facts)];
    let lag = replicas.iter().filter_map(|replica| replica.lag_s).max();
    if let Some(lag) = lag.filter(|lag| *lag > LONG_LAG_S) {
        let what = format!("replicas: one has been silent for {lag} s");
        let why = "after a failover to it every grant since then is forgotten";
        findings.push(warning(what, why).advice("see its log and the network to it"));
    }
    findings.extend(wait(online, facts));
    findings.extend(least(online, info, settings, lonely));
    findings
}

fn failover(online: u64, facts: &Facts) -> Finding {
    let what = format!("role: a primary with {online} replicas in touch");
    if online == 0 {
        let why = "no replica could take over now; one that is only out of touch, and is made the \
                   primary later, has forgotten the grants since it was lost";
        return healthy(what, why);
    }
    let why = "replication is asynchronous: a failover forgets the latest grants, so that a held \
               key is granted again";
    if facts.quarantine.is_some() {
        let why = format!("{why}; the quarantine counts a failover as a restart");
        return note(what, why);
    }
    if facts.wait.is_some() {
        let why = format!("{why}; waiting for replicas makes that rarer, not impossible");
        return note(what, why);
    }
    if facts.slot.is_some() {
        // There is no cluster without failovers, and no waiting in one.
        return warning(what, why).advice("give the store a quarantine (`?quarantine_ms=`)");
    }
    if facts.sentinels {
        // They are there for the failover.
        return warning(what, why).advice(
            "give the store a quarantine (`?quarantine_ms=`), or at least wait for the replicas \
             (`?wait_replicas=`)",
        );
    }
    warning(what, why).advice(
        "switch automatic failover off, or give the store a quarantine (`?quarantine_ms=`), or \
         at least wait for the replicas (`?wait_replicas=`)",
    )
}

fn wait(online: u64, facts: &Facts) -> Option<Finding> {
    let (wanted, within) = facts.wait?;
    let what = format!("wait_replicas: {wanted} of {online} in touch, within {within:?}");
    Some(if u64::from(wanted) > online {
        let why = "no grant can be confirmed: each one is given back";
        critical(what, why).advice("bring replicas back, or wait for fewer")
    } else if u64::from(wanted) < online {
        let why = "a failover may choose a replica that a grant did not wait for";
        note(what, why).advice("wait for all replicas that may take over")
    } else {
        healthy(what, "every replica has a grant before it is answered")
    })
}

/// `min-replicas-to-write`; `lonely` when the server was seen to refuse writes
/// for it.
fn least(online: u64, info: &Info, settings: &Settings, lonely: bool) -> Option<Finding> {
    let Some(least) = settings.number("min-replicas-to-write") else {
        return lonely.then(|| too_few(&format!("min-replicas-to-write: more than {online}")));
    };
    let what = format!("min-replicas-to-write: {least}");
    let why = "a primary that has lost its replicas goes on granting unless this forbids it, \
               while one of them may have taken over";
    if least == 0 {
        return (online > 0).then(|| {
            note(what, why).advice("set it to 1 or more if one of the replicas may take over")
        });
    }
    let good = info.number("min_slaves_good_slaves").unwrap_or(online);
    Some(if lonely || good < least {
        too_few(&format!("{what}, and {good} are in touch"))
    } else {
        let lag = settings.text("min-replicas-max-lag").unwrap_or("?");
        healthy(
            format!("{what}, with min-replicas-max-lag {lag}"),
            "a primary that has lost its replicas stops granting after that many seconds",
        )
    })
}

fn too_few(what: &str) -> Finding {
    let why = "the server refuses every acquire and every renewal until enough replicas are in \
               touch";
    critical(what, why).advice("bring replicas back")
}
