//! What a quorum promises, from what its nodes promise; and what is found.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::StreamExt;

use super::{Inner, Node};
use crate::diagnosis::{Diagnosis, Finding, Severity};
use crate::error::{InvalidInput, StoreError};
use crate::guarantees::{Exclusion, ExpiryJudge, Guarantees, Survives, TtlRange, WakeUps};
use crate::retry::ATTEMPT_LIMIT;
use crate::ttl::Ttl;

/// Far more than tokens are ahead of the clocks by.
const CAUGHT_UP: Duration = Duration::from_secs(10);

pub(super) fn guarantees(nodes: &[Arc<Node>], majority: usize) -> Result<Guarantees, InvalidInput> {
    let all: Vec<Guarantees> = nodes.iter().map(|n| n.backend.guarantees()).collect();
    let mut kinds: Vec<&str> = all.iter().map(|g| &*g.store).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let name = format!("quorum of {} ({})", nodes.len(), kinds.join(", "));
    let listing = all.iter().filter(|g| g.listing).count() >= majority;
    let key_bytes = all.iter().map(|g| g.max_key_bytes).min();
    let (exclusion, ttl) = (common(&all, |g| g.exclusion_survives), ttl(&all)?);
    Ok(Guarantees::new(name)
        .exclusion(reach(&all), exclusion)
        .tokens_survive(tokens(&all, exclusion, ttl))
        .ttl(ttl)
        .expiry(expiry(&all))
        .wake_ups(wake_ups(&all, majority))
        .listing(listing)
        .max_key_bytes(key_bytes.unwrap_or(0)))
}

/// A node that only one process or host sees is another node for the next one:
/// two majorities then need not share any.
fn reach(all: &[Guarantees]) -> Exclusion {
    let any = |reach| all.iter().any(|g| g.exclusion == reach);
    if any(Exclusion::Process) {
        Exclusion::Process
    } else if any(Exclusion::Host) {
        Exclusion::Host
    } else {
        Exclusion::Quorum
    }
}

/// What every node survives. One that forgets its grants and goes on granting
/// makes a second majority; that the others remember does not help.
fn common(all: &[Guarantees], of: fn(&Guarantees) -> Survives) -> Survives {
    let every = |wanted: fn(&Survives) -> bool| all.iter().all(|g| wanted(&of(g)));
    Survives {
        restart: every(|s| s.restart),
        data_loss: every(|s| s.data_loss),
        failover: every(|s| s.failover),
        clock_step: every(|s| s.clock_step),
    }
}

/// Tokens are ahead of the nodes' clocks: where all data may be lost they go on
/// rising only if nothing is granted until the clocks have caught up. A
/// quarantine sees to that, and it is as long as the longest TTL.
fn tokens(all: &[Guarantees], exclusion: Survives, ttl: TtlRange) -> Survives {
    let mut tokens = common(all, |g| g.tokens_survive);
    let caught_up = exclusion.data_loss && ttl.max >= CAUGHT_UP;
    // One node alone names the token itself.
    tokens.data_loss &= caught_up || all.len() == 1;
    tokens
}

fn ttl(all: &[Guarantees]) -> Result<TtlRange, InvalidInput> {
    let min = all.iter().map(|g| g.ttl.min).max().unwrap_or_default();
    let max = all.iter().map(|g| g.ttl.max).min().unwrap_or_default();
    let resolution = all.iter().map(|g| g.ttl.resolution).max();
    if min > max {
        return Err(InvalidInput::QuorumNodes {
            what: format!(
                "no TTL suits all nodes: one takes {min:?} or more, another {max:?} or less"
            ),
        });
    }
    Ok(TtlRange {
        min,
        max,
        resolution: resolution.unwrap_or_default(),
    })
}

fn expiry(all: &[Guarantees]) -> ExpiryJudge {
    let by_clock = all.iter().all(|g| g.expiry == ExpiryJudge::StoreClock);
    match by_clock {
        true => ExpiryJudge::StoreClock,
        false => ExpiryJudge::UnchangedWhileObserved,
    }
}

/// A release reaches a majority: hints come from so many nodes that one of them
/// gives any.
fn wake_ups(all: &[Guarantees], majority: usize) -> WakeUps {
    let needed = all.len() - majority + 1;
    let pushing = all.iter().filter(|g| g.wake_ups == WakeUps::Push).count();
    if pushing >= needed {
        return WakeUps::Push;
    }
    let mut paces: Vec<Duration> = all
        .iter()
        .filter_map(|g| match g.wake_ups {
            WakeUps::Push => Some(Duration::ZERO),
            WakeUps::Poll { every } => Some(every),
            WakeUps::None => None,
        })
        .collect();
    paces.sort_unstable();
    match paces.get(needed - 1) {
        Some(every) => WakeUps::Poll { every: *every },
        None => WakeUps::None,
    }
}

/// Every node's findings, then the quorum's own.
pub(super) async fn diagnose(inner: &Arc<Inner>, ttl: Ttl) -> Result<Diagnosis, StoreError> {
    let silent = || StoreError::unavailable("no answer within 10 s");
    let answers: Vec<_> = inner
        .ask_all(|node| async move {
            let looked = tokio::time::timeout(ATTEMPT_LIMIT, node.backend.diagnose(ttl)).await;
            looked.unwrap_or_else(|_| Err(silent()))
        })
        .collect()
        .await;
    let failed: Vec<_> = answers
        .iter()
        .filter_map(|(i, answer)| Some((*i, answer.as_ref().err()?)))
        .collect();
    if failed.len() > inner.spare() {
        return Err(inner.no_majority("diagnose", &failed, false));
    }
    let mut answers = answers;
    answers.sort_by_key(|(i, _)| *i);
    let mut findings = vec![size(inner)];
    for (i, answer) in answers {
        let Some(node) = inner.nodes.get(i) else {
            continue;
        };
        match answer {
            Ok(diagnosis) => findings.extend(diagnosis.findings.into_iter().map(|f| Finding {
                what: format!("{}: {}", node.name, f.what),
                ..f
            })),
            Err(error) => findings.push(out_of_reach(node, &error)),
        }
        findings.extend(forgets(node));
    }
    Ok(Diagnosis { findings })
}

fn size(inner: &Inner) -> Finding {
    let (nodes, majority, spare) = (inner.nodes.len(), inner.majority, inner.spare());
    let what = format!("{majority} of {nodes} nodes must agree");
    let why = format!("any {spare} of them may be lost or slow");
    if spare == 0 {
        let why = "the loss of one node is the loss of every lease";
        return Finding::new(Severity::Warning, what, why).advice("use three nodes, or five");
    }
    let finding = Finding::new(Severity::Healthy, what, why);
    if nodes % 2 == 0 {
        let one_less = nodes - 1;
        return finding.advice(format!("{one_less} nodes bear the loss of as many"));
    }
    finding
}

fn out_of_reach(node: &Node, error: &StoreError) -> Finding {
    Finding::new(
        Severity::Warning,
        format!("{}: {error}", node.name),
        "the others must all stand while this node is away",
    )
    .advice("bring the node back")
}

/// The one thing that a quorum cannot bear of a minority.
fn forgets(node: &Node) -> Option<Finding> {
    let survives = node.backend.guarantees().exclusion_survives;
    if survives.restart && survives.data_loss {
        return None;
    }
    Some(
        Finding::new(
            Severity::Warning,
            format!(
                "{}: its grants do not outlive a restart or the loss of its data",
                node.name
            ),
            "a node that comes back empty and grants at once makes a second majority",
        )
        .advice("switch its quarantine on, with the longest TTL that clients ask for"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(max_ttl: Duration, quarantine: bool) -> Guarantees {
        let exclusion = match quarantine {
            true => Survives::NOTHING.restart().data_loss(),
            false => Survives::NOTHING,
        };
        Guarantees::new("node")
            .exclusion(Exclusion::SinglePrimary, exclusion)
            .tokens_survive(Survives::NOTHING.restart().data_loss())
            .ttl(TtlRange::new(
                Ttl::MIN,
                Ttl::new(max_ttl).unwrap(),
                Duration::ZERO,
            ))
    }

    fn survives(nodes: &[Guarantees]) -> Survives {
        let exclusion = common(nodes, |g| g.exclusion_survives);
        tokens(nodes, exclusion, ttl(nodes).unwrap())
    }

    #[test]
    fn tokens_that_are_ahead_survive_a_loss_of_all_data_only_by_a_long_quarantine() {
        let [long, short] = [CAUGHT_UP, CAUGHT_UP / 2].map(|max| node(max, true));
        let none = node(Duration::from_secs(60), false);
        let three = |one: &Guarantees| survives(&[long.clone(), long.clone(), one.clone()]);
        assert!(three(&long).data_loss);
        for weak in [short, none] {
            assert!(!three(&weak).data_loss && three(&weak).restart);
            // Its own tokens are what is handed out.
            assert!(survives(&[weak]).data_loss);
        }
    }
}
