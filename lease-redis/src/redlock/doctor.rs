//! What shows only when the nodes are compared.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use lease_core::{Diagnosis, Finding, LeaseBackend, Severity, StoreError, Ttl};

use super::RedlockStore;
use super::merge::merged;
use crate::doctor::{Glance, Standing};

/// For one look.
const PATIENCE: Duration = Duration::from_secs(10);
/// Clocks that a time service keeps do not differ by more.
const SAME_TIME: Duration = Duration::from_millis(500);
const OTHER_TIME: Duration = Duration::from_secs(60);

pub(super) async fn diagnose(
    store: &RedlockStore,
    ttl: Ttl,
    quarantine: Ttl,
) -> Result<Diagnosis, StoreError> {
    let looks = store.nodes().iter().map(|(name, node)| async move {
        let glance = tokio::time::timeout(PATIENCE, node.glance()).await;
        // One that is out of reach is the quorum's own finding.
        Some((name.as_str(), glance.ok()?.ok()?))
    });
    let (diagnosis, looks) =
        futures_util::future::join(store.quorum().diagnose(ttl), join_all(looks)).await;
    let names: Vec<_> = store.quorum().node_names().collect();
    let mut findings = merged(diagnosis?.findings, &names);
    let seen = Seen {
        nodes: looks.into_iter().flatten().collect(),
        all: names.len(),
        majority: store.quorum().majority(),
        quarantine: quarantine.get(),
    };
    findings.extend(seen.one_server());
    findings.extend(seen.grants());
    findings.extend(seen.replicas());
    findings.extend(seen.clocks());
    Ok(Diagnosis { findings })
}

/// The nodes that can be looked at.
struct Seen<'a> {
    nodes: Vec<(&'a str, Glance)>,
    all: usize,
    majority: usize,
    quarantine: Duration,
}

impl Seen<'_> {
    fn one_server(&self) -> Vec<Finding> {
        let mut runs = BTreeMap::<&str, Vec<&str>>::new();
        for (name, glance) in &self.nodes {
            if let Some(run) = glance.run() {
                runs.entry(run).or_default().push(name);
            }
        }
        let doubled = runs.into_values().filter(|names| names.len() > 1);
        let finding = |names: Vec<&str>| {
            let what = format!(
                "{}: one server with {} names",
                names.join(", "),
                names.len()
            );
            let why = "it has as many votes as names, and its loss is the loss of so many nodes";
            Finding::new(Severity::Critical, what, why).advice("name each server once")
        };
        doubled.map(finding).collect()
    }

    /// How many nodes grant free keys, and when a majority does.
    fn grants(&self) -> Option<Finding> {
        let mut waits: Vec<Duration> = self
            .nodes
            .iter()
            .filter_map(|(_, glance)| self.wait(glance))
            .collect();
        waits.sort_unstable();
        let open = waits.iter().filter(|wait| wait.is_zero()).count();
        let what = format!("grants: {open} of {} nodes grant free keys now", self.all);
        let why = "a node that is new, was restarted, or was made a primary refuses them until every \
                   grant that it may have forgotten has ended";
        if open == self.all {
            return Some(Finding::new(Severity::Healthy, what, why));
        }
        if open >= self.majority {
            return Some(Finding::new(Severity::Note, what, why));
        }
        let unborn = |(_, glance): &(&str, Glance)| glance.standing() == Standing::Unborn;
        if self.nodes.len() == self.all && self.nodes.iter().all(unborn) {
            return Some(Finding::new(Severity::Note, what, why).advice(
                "if this quorum is new, open it with `lease quorum init`; else wait for the \
                 quarantine's end, which begins with the first acquire",
            ));
        }
        let longest = waits.get(self.majority - 1)?;
        let what = format!("{what}, and a majority in {longest:.0?} at the earliest");
        Some(
            Finding::new(Severity::Warning, what, why)
                .advice("wait for it; do not restart more nodes at once than a quorum may lose"),
        )
    }

    /// Until this node grants; `None` when that cannot be known.
    fn wait(&self, glance: &Glance) -> Option<Duration> {
        match glance.standing() {
            Standing::Unborn | Standing::Anew => Some(self.quarantine),
            Standing::Since(since_us) => {
                let passed = glance.now_us()?.saturating_sub(since_us);
                // From the future it begins anew.
                let passed = Duration::from_micros(u64::try_from(passed).unwrap_or(0));
                Some(self.quarantine.saturating_sub(passed))
            }
            Standing::Unknown => None,
        }
    }

    fn replicas(&self) -> Option<Finding> {
        let with: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, glance)| glance.replicas() > 0)
            .map(|(name, _)| *name)
            .collect();
        if with.is_empty() {
            return None;
        }
        let what = format!("{}: replicas may take the node's place", with.join(", "));
        let why = "one that does begins with a quarantine. It covers the grants that the replica has \
                   not got, if the former primary answers nobody any more: both at once are two \
                   votes of one node";
        Some(
            Finding::new(Severity::Note, what, why).advice(
                "let nothing promote them by itself: the other nodes are the replicas here",
            ),
        )
    }

    fn clocks(&self) -> Option<Finding> {
        let ahead = |(name, glance): &(_, Glance)| Some((glance.ahead_us()?, *name));
        let clocks: Vec<(i64, &str)> = self.nodes.iter().filter_map(ahead).collect();
        let (first, last) = (clocks.iter().min()?, clocks.iter().max()?);
        let apart = Duration::from_micros(last.0.abs_diff(first.0));
        let why = "tokens follow the clock that is furthest ahead, and each node's grants end by its \
                   own: that they differ harms nothing, but a clock that is set right by a step \
                   forward ends its grants early";
        if apart <= SAME_TIME {
            let what = "clocks: the nodes' agree";
            return Some(Finding::new(Severity::Healthy, what, why));
        }
        let what = format!(
            "clocks: that of {} is {apart:.1?} ahead of {}'s",
            last.1, first.1
        );
        let severity = match apart > OTHER_TIME {
            true => Severity::Warning,
            false => Severity::Note,
        };
        let advice = "keep the nodes' clocks with a time service that slews and never steps them";
        Some(Finding::new(severity, what, why).advice(advice))
    }
}
