//! What many nodes have in common is said once.

use lease_core::Finding;

/// The findings of a quorum in which those that several nodes have stand once, at
/// the place of the first. A node's own begin with its name and a colon.
pub(super) fn merged(findings: Vec<Finding>, names: &[&str]) -> Vec<Finding> {
    let mut all: Vec<Group> = Vec::new();
    for finding in findings {
        let node = names.iter().find_map(|name| {
            let rest = finding.what.strip_prefix(name)?.strip_prefix(": ")?;
            Some(((*name).to_owned(), rest.to_owned()))
        });
        let Some((name, what)) = node else {
            all.push(Group::quorums(finding));
            continue;
        };
        let topic = topic(&what).to_owned();
        let known = all.iter_mut().find(|group| group.takes(&topic, &finding));
        match known {
            Some(group) => group.put(name, what),
            None => all.push(Group {
                topic: Some(topic),
                said: vec![(what, vec![name])],
                finding,
            }),
        }
    }
    all.into_iter().map(|group| group.finding(names)).collect()
}

/// What a finding is of: what stands before the first colon.
fn topic(what: &str) -> &str {
    what.split_once(": ").map_or(what, |(topic, _)| topic)
}

struct Group {
    /// `None` for the quorum's own.
    topic: Option<String>,
    /// What was said, and by which nodes.
    said: Vec<(String, Vec<String>)>,
    finding: Finding,
}

impl Group {
    fn quorums(finding: Finding) -> Self {
        Self {
            topic: None,
            said: Vec::new(),
            finding,
        }
    }

    fn takes(&self, topic: &str, finding: &Finding) -> bool {
        self.topic.as_deref() == Some(topic)
            && self.finding.severity == finding.severity
            && self.finding.why == finding.why
            && self.finding.advice == finding.advice
    }

    fn put(&mut self, name: String, what: String) {
        match self.said.iter_mut().find(|(said, _)| *said == what) {
            Some((_, names)) => names.push(name),
            None => self.said.push((what, vec![name])),
        }
    }

    fn finding(self, all: &[&str]) -> Finding {
        let Some(topic) = self.topic else {
            return self.finding;
        };
        let what = match &self.said[..] {
            [(what, names)] => format!("{}: {what}", listed(names, all)),
            several => {
                let parts: Vec<_> = several
                    .iter()
                    .map(|(what, names)| {
                        let rest = what.strip_prefix(&topic).unwrap_or(what);
                        let rest = rest.strip_prefix(": ").unwrap_or(rest);
                        format!("{rest} ({})", listed(names, all))
                    })
                    .collect();
                format!("{topic}: {}", parts.join("; "))
            }
        };
        Finding {
            what,
            ..self.finding
        }
    }
}

fn listed(names: &[String], all: &[&str]) -> String {
    match names.len() {
        n if n > 1 && n == all.len() => format!("all {n} nodes"),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use lease_core::Severity;

    use super::*;

    fn finding(severity: Severity, what: &str) -> Finding {
        Finding::new(severity, what, "why").advice("do")
    }

    #[test]
    fn what_nodes_have_in_common_is_said_once() {
        use Severity::{Healthy, Note};
        let names = ["a:1", "a:12", "b:1"];
        let findings = vec![
            finding(Healthy, "2 of 3 nodes must agree"),
            finding(Healthy, "a:1: server: Redis 7"),
            finding(Healthy, "a:1: round trips: 1 ms"),
            finding(Healthy, "a:1: clock: agrees"),
            finding(Healthy, "a:12: server: Redis 7"),
            finding(Note, "a:12: clock: behind"),
            finding(Healthy, "a:12: round trips: 2 ms"),
            finding(Healthy, "b:1: server: Redis 7"),
            finding(Healthy, "b:1: round trips: 1 ms"),
            finding(Healthy, "b:1: clock: agrees"),
        ];
        let whats: Vec<_> = merged(findings, &names)
            .into_iter()
            .map(|finding| (finding.severity, finding.what))
            .collect();
        let expected = [
            (Healthy, "2 of 3 nodes must agree"),
            (Healthy, "all 3 nodes: server: Redis 7"),
            (Healthy, "round trips: 1 ms (a:1, b:1); 2 ms (a:12)"),
            (Healthy, "a:1, b:1: clock: agrees"),
            (Note, "a:12: clock: behind"),
        ];
        assert_eq!(whats, expected.map(|(s, what)| (s, what.to_owned())));
    }
}
