//! What the nodes of a cluster are together.

use std::collections::BTreeSet;
use std::time::Duration;

use lease_core::Finding;

use super::{Facts, critical, healthy, note, unknown, warning};

/// Clocks that a time service keeps do not differ by more.
const SAME_TIME: Duration = Duration::from_millis(500);

/// The cluster, as it was seen.
#[derive(Debug)]
pub(super) struct Together {
    pub(super) members: Vec<Member>,
    pub(super) replicas: Vec<Replica>,
    /// Slots that nobody has.
    pub(super) uncovered: usize,
}

/// A primary.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: String,
    /// Or why it was not.
    pub(super) reached: Result<Reached, String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Reached {
    pub(super) serves: Option<bool>,
    pub(super) node_timeout_ms: Option<u64>,
    pub(super) full_coverage: Option<bool>,
    pub(super) replicas: Option<usize>,
    /// How far its clock is ahead of ours, at least and at most.
    pub(super) clock_us: Option<(i64, i64)>,
    /// Slots that are on their way to it or from it.
    pub(super) moving: Vec<u16>,
}

/// The slots that are on their way, of a node's own line in CLUSTER NODES.
pub(super) fn moving(nodes: &str) -> Vec<u16> {
    let own = nodes.lines().find(|line| line.contains("myself"));
    let words = own.into_iter().flat_map(str::split_whitespace);
    let slots = words.filter_map(|word| word.strip_prefix('[')?.split('-').next()?.parse().ok());
    slots.collect()
}

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) unreached: Option<String>,
    /// Whether it follows its primary.
    pub(super) linked: Option<bool>,
    pub(super) clock_us: Option<(i64, i64)>,
}

impl Together {
    pub(super) fn judge(&self, facts: &Facts) -> Vec<Finding> {
        let mut findings = vec![self.state()];
        findings.extend(self.slots());
        findings.extend(self.moves());
        findings.extend(self.addresses());
        findings.extend(self.replicas());
        findings.extend(self.coverage());
        findings.push(self.timeout(facts));
        findings.extend(self.clocks());
        findings
    }

    fn reached(&self) -> impl Iterator<Item = (&Member, &Reached)> {
        let reached = |member| Some((member, Member::reached(member)?));
        self.members.iter().filter_map(reached)
    }

    fn state(&self) -> Finding {
        let why = "a cluster that is down refuses every acquire and every renewal";
        let down: Vec<_> = self
            .reached()
            .filter(|(_, seen)| seen.serves == Some(false))
            .map(|(member, _)| member.name.as_str())
            .collect();
        if !down.is_empty() {
            let what = format!("cluster: down, says {}", down.join(", "));
            return critical(what, why).advice(
                "bring the primaries or their replicas back; with cluster-require-full-coverage \
                 no the slots that are left go on",
            );
        }
        match self.reached().all(|(_, seen)| seen.serves.is_some()) {
            true => healthy(
                format!("cluster: ok, with {} primaries", self.members.len()),
                why,
            ),
            false => unknown("cluster", why, "the user may not ask"),
        }
    }

    fn slots(&self) -> Option<Finding> {
        (self.uncovered > 0).then(|| {
            let what = format!("slots: {} have no primary", self.uncovered);
            let why = "keys in them can be neither acquired nor renewed";
            critical(what, why).advice(
                "bring their primary or a replica of it back, or give them \
                                        to another one (`redis-cli --cluster fix`)",
            )
        })
    }

    fn moves(&self) -> Option<Finding> {
        let slots = self.reached().flat_map(|(_, seen)| &seen.moving);
        let slots: BTreeSet<_> = slots.collect();
        let first = slots.first()?;
        let what = match slots.len() {
            1 => format!("slots: {first} is on its way to another node"),
            n => format!("slots: {n} are on their way to other nodes, {first} among them"),
        };
        let why = "until they are there, new keys in them cannot be acquired, and others only where \
                   their record and the slot's birth marker are";
        Some(warning(what, why).advice(
            "if nobody moves them, `redis-cli --cluster fix`; with a quarantine, and if a node that \
             got keys has lost its data, delete the slot's birth marker at the other node first",
        ))
    }

    /// The nodes' own word for where they are is what every client goes by.
    fn addresses(&self) -> Vec<Finding> {
        let primaries = self.members.iter().filter_map(|member| {
            let error = member.reached.as_ref().err()?;
            let what = format!(
                "address: the primary {} cannot be reached: {error}",
                member.name
            );
            let why = "its keys can be neither acquired nor renewed from here";
            Some(critical(what, why))
        });
        let replicas = self.replicas.iter().filter_map(|replica| {
            let error = replica.unreached.as_ref()?;
            let what = format!(
                "address: the replica {} cannot be reached: {error}",
                replica.name
            );
            let why = "when it takes over, the keys of its primary cannot be used from here";
            Some(warning(what, why))
        });
        let advice = "bring it back; if it runs, set cluster-announce-ip and cluster-announce-port \
                      to what leads to it from here";
        let all = primaries.chain(replicas);
        all.map(|finding| finding.advice(advice)).collect()
    }

    fn replicas(&self) -> Vec<Finding> {
        let why = "when it fails, nobody takes over, and its keys stay where they are until it is \
                   back";
        let lonely = self.reached().filter(|(_, seen)| seen.replicas == Some(0));
        let lonely = lonely.map(|(member, _)| {
            let what = format!("replicas: {} has none", member.name);
            warning(what, why)
                .advice("give it one (`redis-cli --cluster add-node --cluster-slave`)")
        });
        let behind = self.replicas.iter().filter(|one| one.linked == Some(false));
        let behind = behind.map(|replica| {
            let what = format!("replicas: {} does not follow its primary", replica.name);
            let why = "if it takes over, every grant since it lost touch is forgotten";
            warning(what, why).advice("see its log: the network, or masteruser and masterauth")
        });
        let mut findings: Vec<_> = lonely.chain(behind).collect();
        let blank =
            |member: &&Member| Member::reached(member).is_none_or(|seen| seen.replicas.is_none());
        let blank: Vec<_> = self.members.iter().filter(blank).collect();
        let blank: Vec<_> = blank.iter().map(|member| member.name.as_str()).collect();
        if !blank.is_empty() {
            let what = format!("replicas of {}", blank.join(", "));
            findings.push(unknown(
                &what,
                why,
                "the primary cannot be reached, or the user may not ask (INFO)",
            ));
        } else if findings.is_empty() {
            let what = format!(
                "replicas: {}, and every primary has some",
                self.replicas.len()
            );
            findings.push(healthy(what, "one of them takes over when a primary fails"));
        }
        findings
    }

    fn coverage(&self) -> Option<Finding> {
        let all = self.reached().filter_map(|(_, seen)| seen.full_coverage);
        let strict = all.reduce(|one, other| one || other)?;
        let why = "whether one part of the cluster that is lost stops the keys of all others";
        Some(match strict {
            true => note("cluster-require-full-coverage: yes", why)
                .advice("set it to no on every node, so that the leases of the other parts go on"),
            false => healthy("cluster-require-full-coverage: no", why),
        })
    }

    fn timeout(&self, facts: &Facts) -> Finding {
        let name = "cluster-node-timeout";
        let why = "a replica takes over a second or two after a primary was silent for so long; a \
                   primary that is cut off from the others goes on granting for as long, and what \
                   it granted then is lost";
        let longest = self
            .reached()
            .filter_map(|(_, seen)| seen.node_timeout_ms)
            .max();
        let Some(ms) = longest else {
            return unknown(name, why, "the user may not ask");
        };
        let timeout = Duration::from_millis(ms);
        let what = format!("{name}: {timeout:?}, for a TTL of {}", facts.ttl);
        let advice = "take a longer TTL or a shorter timeout, or no lease lives through the \
                      failure of its primary";
        // The vote and the way of the news take a second or two more.
        if timeout >= facts.ttl.get() {
            warning(what, why).advice(advice)
        } else if timeout + Duration::from_secs(2) >= facts.ttl.get() {
            note(what, why).advice(advice)
        } else {
            healthy(what, why)
        }
    }

    /// How far the clocks are apart, without what the way there can explain.
    fn clocks(&self) -> Option<Finding> {
        let primaries = self
            .reached()
            .map(|(member, seen)| (member.name.as_str(), seen.clock_us));
        let replicas = self
            .replicas
            .iter()
            .map(|replica| (replica.name.as_str(), replica.clock_us));
        let all = primaries.chain(replicas);
        let all: Vec<_> = all
            .filter_map(|(name, bounds)| Some((name, bounds?)))
            .collect();
        let (ahead, (least, _)) = all.iter().max_by_key(|(_, (least, _))| *least)?;
        let (behind, (_, most)) = all.iter().min_by_key(|(_, (_, most))| *most)?;
        let apart = least.saturating_sub(*most).max(0).unsigned_abs();
        let apart = Duration::from_micros(apart);
        let why = "a failover or a move of a slot is a step of the clock by which its grants \
                   expire and its tokens rise";
        let advice = "keep the clocks of all nodes with a time service that slews and never steps \
                      them";
        Some(if apart <= SAME_TIME {
            healthy("clocks: those of the nodes agree", why)
        } else {
            let what = format!("clocks: {ahead} is {apart:.1?} ahead of {behind}");
            warning(what, why).advice(advice)
        })
    }
}

impl Member {
    fn reached(&self) -> Option<&Reached> {
        self.reached.as_ref().ok()
    }
}

#[cfg(test)]
mod tests {
    use lease_core::{Severity, Ttl};

    use super::*;
    use crate::doctor::tests::facts;

    fn together(reached: Reached) -> Together {
        let member = |name: &str| Member {
            name: name.to_owned(),
            reached: Ok(reached.clone()),
        };
        Together {
            members: vec![member("a:1"), member("b:2")],
            replicas: Vec::new(),
            uncovered: 0,
        }
    }

    fn sound() -> Reached {
        Reached {
            serves: Some(true),
            node_timeout_ms: Some(15_000),
            full_coverage: Some(false),
            replicas: Some(1),
            clock_us: Some((-5, 5)),
            moving: Vec::new(),
        }
    }

    #[test]
    fn slots_that_are_on_their_way_are_told() {
        let nodes = "a1 127.0.0.1:1@2 master - 0 1 1 connected 5\n\
                     b2 127.0.0.1:3@4 myself,master - 0 1 2 connected 0-4 7 [7->-a1] [5-<-a1]\n";
        assert_eq!(moving(nodes), [7, 5]);
        assert!(moving("").is_empty() && moving("c3 x myself [x->-] [").is_empty());
        let seen = together(Reached {
            moving: moving(nodes),
            ..sound()
        });
        assert_eq!(found(&seen, "slots: 2 are on their way"), Severity::Warning);
    }

    fn found(seen: &Together, what: &str) -> Severity {
        let all = seen.judge(&facts());
        let found: Vec<_> = all
            .iter()
            .filter(|one| one.what.starts_with(what))
            .collect();
        match found[..] {
            [found] => found.severity,
            _ => panic!("{what}: {all:#?}"),
        }
    }

    #[test]
    fn what_cannot_be_provoked_is_judged() {
        let all = together(sound()).judge(&facts());
        assert!(
            all.iter().all(|one| one.severity == Severity::Healthy),
            "{all:#?}"
        );

        let mut apart = together(sound());
        apart.replicas.push(Replica {
            name: "c:3".to_owned(),
            unreached: None,
            linked: Some(true),
            clock_us: Some((700_000, 900_000)),
        });
        assert_eq!(found(&apart, "clocks: c:3 is 700"), Severity::Warning);
        apart.replicas[0].clock_us = Some((300_000, 900_000));
        assert_eq!(found(&apart, "clocks: "), Severity::Healthy);
        apart.replicas[0].clock_us = Some((i64::MIN, i64::MIN));
        assert_eq!(found(&apart, "clocks: "), Severity::Warning);

        let mut lost = together(sound());
        lost.uncovered = 7;
        assert_eq!(found(&lost, "slots: 7"), Severity::Critical);
        let blind = together(Reached::default());
        assert_eq!(found(&blind, "cluster: could not"), Severity::Note);
        let replicas = "replicas of a:1, b:2: could not";
        assert_eq!(found(&blind, replicas), Severity::Note);
        let mut away = together(sound());
        away.members[1].reached = Err("away".to_owned());
        let replicas = "replicas of b:2: could not";
        assert_eq!(found(&away, replicas), Severity::Note);
        assert_eq!(
            found(&blind, "cluster-node-timeout: could not"),
            Severity::Note
        );
    }

    #[test]
    fn the_node_timeout_is_judged_by_the_ttl() {
        let seen = together(sound());
        for (seconds, severity) in [
            (15, Severity::Warning),
            (17, Severity::Note),
            (30, Severity::Healthy),
        ] {
            let ttl = Ttl::new(Duration::from_secs(seconds)).unwrap();
            let facts = Facts { ttl, ..facts() };
            assert_eq!(seen.timeout(&facts).severity, severity, "{seconds}");
        }
    }
}
