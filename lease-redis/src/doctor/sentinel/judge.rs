//! What follows for a lease.

use std::collections::BTreeSet;
use std::time::Duration;

use lease_core::{DriftAllowance, Finding};

use super::View;
use super::look::{Node, Said};
use crate::doctor::ask::Refusal;
use crate::doctor::{Facts, critical, healthy, note, unknown, warning};

/// A primary that is missed sooner is replaced when it is only busy.
const HASTY: Duration = Duration::from_secs(1);
/// Beside the time until the primary is missed: to agree, to choose, to promote,
/// to tell.
const ELECTION: Duration = Duration::from_secs(2);
const FEWEST: u64 = 3;

pub(super) fn judge(view: &View, facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![answers(view)];
    findings.extend(known(view));
    findings.extend(listening(view));
    findings.extend(agreement(view));
    findings.extend(quorum(view));
    findings.extend(patience(view, facts));
    findings.push(replicas(view));
    findings.extend(reach(view));
    findings.extend(empty_start(view, facts));
    findings.extend(forgetful(view, facts));
    findings.extend(clocks(view, facts));
    findings
}

fn answers(view: &View) -> Finding {
    let (said, named) = (view.said.len(), view.named);
    let what = format!("sentinels: {said} of the {named} in the URL answer");
    let why = "they tell where the primary is, and that it is another one";
    if view.silent.is_empty() {
        return healthy(what, why);
    }
    let silent = view.silent.iter().map(|(who, why)| format!("{who}: {why}"));
    let what = format!("{what} ({})", silent.collect::<Vec<_>>().join("; "));
    let advice = "bring them back, or take them out of the URL";
    match said {
        0 => critical(what, why).advice(advice),
        _ => warning(what, why).advice(advice),
    }
}

/// Sentinels that the URL does not name.
fn known(view: &View) -> Option<Finding> {
    let others = view
        .said
        .iter()
        .filter_map(|one| one.number("num-other-sentinels"));
    let all = others.max()? + 1;
    let named = u64::try_from(view.named).unwrap_or(u64::MAX);
    let why = "a client that knows few of them is lost with those, and cannot tell an old answer \
               from a new one";
    (named < all).then(|| {
        let what = format!("sentinels: the URL names {named} of {all}");
        let advice = "name all of them in the URL";
        match named {
            1 => warning(what, why).advice(advice),
            _ => note(what, why).advice(advice),
        }
    })
}

/// Sentinels that a store does not hear of a failover from.
fn listening(view: &View) -> Option<Finding> {
    let deaf: Vec<_> = view.said.iter().filter(|one| one.deaf).collect();
    let places: Vec<_> = deaf.iter().map(|one| one.place.as_str()).collect();
    (!places.is_empty()).then(|| {
        let what = format!(
            "sentinels: the store cannot listen to {} of the {} that answer ({})",
            places.len(),
            view.said.len(),
            places.join(", ")
        );
        let why = "it hears of a failover when its connection is lost, and a former primary that \
                   still answers is not left";
        warning(what, why).advice(
            "give the sentinels' user the rights +subscribe +ping &+switch-master &+promoted-slave",
        )
    })
}

fn agreement(view: &View) -> Option<Finding> {
    let primary = match &view.primary {
        Ok(primary) => primary,
        Err(error) => {
            let what = format!("primary: the sentinels name none ({})", error.message());
            let why = "nothing can be acquired, renewed or released";
            return Some(critical(what, why).advice("see `SENTINEL MASTERS` at the sentinels"));
        }
    };
    let named = |one: &Said| match &one.primary {
        Ok(Some((host, port))) => Some(format!("{host}:{port}")),
        _ => None,
    };
    let different: BTreeSet<_> = view.said.iter().filter_map(named).collect();
    let what = format!("primary: {primary}");
    if different.len() <= 1 {
        return Some(healthy(what, "every sentinel that answers names this one"));
    }
    let who = view.said.iter().filter_map(|one| {
        let epoch = one.number("config-epoch").unwrap_or_default();
        Some(format!(
            "{} names {} (epoch {epoch})",
            one.place,
            named(one)?
        ))
    });
    let what = format!(
        "{what}, and not all agree: {}",
        who.collect::<Vec<_>>().join(", ")
    );
    let why = "a failover is under way, or sentinels are cut off from one another: clients that \
               hear only those may be granted what others are granted at the newer primary";
    Some(warning(what, why).advice("look again in a minute; then see the network between them"))
}

fn quorum(view: &View) -> Vec<Finding> {
    let mut findings = Vec::new();
    let all = |field| view.said.iter().filter_map(move |one| one.number(field));
    let (Some(others), Some(least), Some(most)) = (
        all("num-other-sentinels").max(),
        all("quorum").min(),
        all("quorum").max(),
    ) else {
        return findings;
    };
    let sentinels = others + 1;
    let why = "so many must miss the primary before it is replaced, and most of them all must agree \
               on who does it";
    let what = format!("quorum: {most} of {sentinels} sentinels");
    let refused =
        |one: &Said| matches!(&one.quorum, Err(Refusal::Error(code)) if code == "NOQUORUM");
    let stuck = view.said.iter().any(refused);
    findings.push(if least != most {
        let what = format!("quorum: {least} at some sentinels and {most} at others");
        warning(what, why).advice("set the same at each")
    } else if most > sentinels || stuck {
        let why = format!("{why}; now they cannot, and a primary that dies is not replaced");
        critical(what, why).advice("bring sentinels back, or correct the quorum")
    } else if sentinels < FEWEST {
        let why = format!("{why}; with fewer than {FEWEST}, one that is lost ends that");
        warning(what, why).advice("run three sentinels on three machines")
    } else if most <= sentinels / 2 {
        let why = format!(
            "{why}; a few that are cut off from a healthy primary may begin a failover, which costs \
             grants"
        );
        note(what, why).advice(format!("make it {}", sentinels / 2 + 1))
    } else {
        healthy(what, why)
    });
    findings
}

fn patience(view: &View, facts: &Facts) -> Option<Finding> {
    let all = view
        .said
        .iter()
        .filter_map(|one| one.number("down-after-milliseconds"));
    let longest = Duration::from_millis(all.max()?);
    let ttl = facts.ttl.get();
    let what = format!(
        "down-after-milliseconds: {} for a TTL of {}",
        longest.as_millis(),
        facts.ttl
    );
    let why = "a primary that dies is replaced after this and an election; renewals begin after a \
               third of the TTL, so that two thirds of it are left for that";
    Some(if longest + ELECTION > ttl * 2 / 3 {
        let why = format!("{why}: here every lease ends before");
        warning(what, why).advice("take a longer TTL, or a shorter down-after-milliseconds")
    } else if longest < HASTY {
        let why = "a primary that only stands still for so long is replaced, and each failover \
                   may cost grants";
        note(what, why).advice("make it a second or more")
    } else {
        healthy(what, why)
    })
}

/// What the sentinels know of them.
fn replicas(view: &View) -> Finding {
    let why = "one of them takes over when the primary dies";
    let lists = view
        .said
        .iter()
        .filter_map(|one| one.replicas.as_ref().ok());
    let Some(list) = lists.max_by_key(|list| list.len()) else {
        let refusal = view.said.iter().find_map(|one| one.replicas.as_ref().err());
        let reason = refusal.map_or("no sentinel answers".to_owned(), ToString::to_string);
        return unknown("replicas, by the sentinels", why, reason);
    };
    let well = |fields: &&std::collections::HashMap<String, String>| {
        let field = |name: &str| fields.get(name).map_or("", String::as_str);
        let flags: Vec<&str> = field("flags").split(',').collect();
        !flags
            .iter()
            .any(|flag| matches!(*flag, "s_down" | "o_down" | "disconnected"))
            && field("master-link-status") == "ok"
            && field("slave-priority") != "0"
    };
    let (all, good) = (list.len(), list.iter().filter(well).count());
    let what = format!("replicas: {good} of {all} may take over, by the sentinels");
    match good {
        0 => warning(what, "a primary that dies is not replaced")
            .advice("bring replicas in touch with the primary"),
        _ if good < all => warning(what, why).advice("see the others' logs and the network"),
        _ => healthy(what, why),
    }
}

fn reach(view: &View) -> Vec<Finding> {
    let primary = view.primary.as_ref().ok();
    let lost = view.nodes.iter().filter_map(|node| match &node.seen {
        Err(reason) => Some((node, reason)),
        Ok(_) => None,
    });
    lost.map(|(node, reason)| {
        let place = &node.place;
        let advice = "let it be reached from here, with the same login; behind an address \
                      translation set replica-announce-ip and replica-announce-port";
        if primary == Some(place) {
            let what = format!("primary: {place} cannot be reached from here ({reason})");
            critical(what, "nothing can be acquired, renewed or released").advice(advice)
        } else {
            let what = format!("replica {place}: cannot be reached from here ({reason})");
            let why = "after a failover to it this client has no store";
            warning(what, why).advice(advice)
        }
    })
    .collect()
}

/// The classic: it is back before it is missed, and its replicas copy nothing.
fn empty_start(view: &View, facts: &Facts) -> Option<Finding> {
    let primary = view.primary.as_ref().ok()?;
    let node = view.nodes.iter().find(|node| node.place == *primary)?;
    let keeps_nothing = node.seen.as_ref().ok()?.keeps_nothing?;
    let has_replicas = view.nodes.len() > 1;
    (keeps_nothing && has_replicas).then(|| {
        let what = "persistence: the primary keeps nothing on its disk, and has replicas";
        let why = "when it restarts before the sentinels miss it, it is empty, and empties its \
                   replicas: every grant and every mark is lost at once";
        let advice = "turn persistence on at every server, or do not restart one by itself";
        match facts.quarantine {
            Some(_) => note(
                what,
                format!("{why}; the quarantine keeps exclusion all the same"),
            ),
            None => warning(what, why),
        }
        .advice(advice)
    })
}

/// Replicas that would be such a primary.
fn forgetful(view: &View, facts: &Facts) -> Option<Finding> {
    let primary = view.primary.as_ref().ok()?;
    let replicas = view.nodes.iter().filter(|node| node.place != *primary);
    let nothing = |node: &&Node| matches!(&node.seen, Ok(seen) if seen.keeps_nothing == Some(true));
    let places: Vec<_> = replicas
        .filter(nothing)
        .map(|node| node.place.to_string())
        .collect();
    (!places.is_empty()).then(|| {
        let what = format!(
            "persistence: replicas keep nothing on their disks ({})",
            places.join(", ")
        );
        let why =
            "after a failover to one of them a restart of it loses every grant and every mark";
        match facts.quarantine {
            Some(_) => note(
                what,
                format!("{why}; the quarantine keeps exclusion all the same"),
            ),
            None => warning(what, why),
        }
        .advice("turn persistence on at every server")
    })
}

/// How far a failover moves the store's clock.
fn clocks(view: &View, facts: &Facts) -> Vec<Finding> {
    let ahead = |node: &Node| node.seen.as_ref().ok()?.ahead_us;
    let primary = view.primary.as_ref().ok();
    let Some(ours) = view
        .nodes
        .iter()
        .find(|node| Some(&node.place) == primary)
        .and_then(ahead)
    else {
        return Vec::new();
    };
    let others: Vec<_> = view
        .nodes
        .iter()
        .filter(|node| Some(&node.place) != primary)
        .filter_map(|node| Some((node, ahead(node)?)))
        .collect();
    if others.is_empty() {
        return Vec::new();
    }
    let allowance = DriftAllowance::default().of(facts.ttl);
    let advice = "keep the servers' clocks with one time service that slews and never steps them";
    let apart = others.iter().filter_map(|(node, theirs)| {
        let place = &node.place;
        // What the round trips cannot explain.
        let forward = micros(theirs.0.saturating_sub(ours.1));
        let back = micros(ours.0.saturating_sub(theirs.1));
        if forward > allowance {
            let what = format!(
                "clocks: a failover to {place} moves the store's clock forward by {forward:.1?}, \
                 and holders allow {allowance:.1?}"
            );
            let why = "grants would end before their holders know";
            Some(warning(what, why).advice(advice))
        } else if back > allowance {
            let what =
                format!("clocks: a failover to {place} moves the store's clock back by {back:.1?}");
            let why = "grants last longer by that; and tokens may fall where the failover loses \
                       the latest marks";
            Some(warning(what, why).advice(advice))
        } else {
            None
        }
    });
    let apart: Vec<_> = apart.collect();
    if !apart.is_empty() {
        return apart;
    }
    let what = format!("clocks: the primary's and {} replicas' agree", others.len());
    let why = "a failover does not move the store's clock by more than holders allow";
    vec![healthy(what, why)]
}

fn micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}
