//! One list of findings from those of many nodes, without saying one thing as
//! often as there are nodes.

use lease_core::{Finding, Severity};

/// What was found at one node.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) findings: Vec<Finding>,
}

/// What is the same everywhere is said once, what is not names its nodes. Where
/// nothing is wrong with something anywhere, one line says so.
pub(super) fn merge(nodes: Vec<Node>) -> Vec<Finding> {
    let all = nodes.len();
    let mut groups: Vec<(Finding, Vec<String>)> = Vec::new();
    for node in nodes {
        for finding in node.findings {
            match groups.iter_mut().find(|(known, _)| same(known, &finding)) {
                Some((_, names)) => names.push(node.name.clone()),
                None => groups.push((finding, vec![node.name.clone()])),
            }
        }
    }
    let sound = |subject: &str| {
        let mut about = groups
            .iter()
            .filter(|(one, _)| self::subject(one) == subject);
        about.all(|(one, _)| one.severity == Severity::Healthy)
    };
    let mut merged: Vec<Finding> = Vec::new();
    for (finding, names) in &groups {
        let subject = subject(finding);
        if names.len() == all {
            merged.push(finding.clone());
        } else if finding.severity > Severity::Healthy {
            merged.push(Finding {
                what: format!("{}; at {}", finding.what, names.join(", ")),
                ..finding.clone()
            });
        } else if sound(subject) {
            let what = format!("{subject}: sound at every primary");
            if !merged.iter().any(|known| known.what == what) {
                merged.push(Finding {
                    what,
                    ..finding.clone()
                });
            }
        }
    }
    merged
}

fn same(one: &Finding, other: &Finding) -> bool {
    one.severity == other.severity
        && one.what == other.what
        && one.why == other.why
        && one.advice == other.advice
}

fn subject(finding: &Finding) -> &str {
    let end = finding.what.find(':').unwrap_or(finding.what.len());
    &finding.what[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, findings: &[(Severity, &str)]) -> Node {
        Node {
            name: name.to_owned(),
            findings: findings
                .iter()
                .map(|(severity, what)| Finding::new(*severity, *what, "why"))
                .collect(),
        }
    }

    #[test]
    fn nothing_is_said_as_often_as_there_are_nodes() {
        use Severity::{Critical, Healthy, Warning};
        let merged = merge(vec![
            node(
                "a",
                &[(Warning, "x: 1"), (Healthy, "y: 1"), (Healthy, "z: 1")],
            ),
            node(
                "b",
                &[(Warning, "x: 1"), (Healthy, "y: 2"), (Critical, "z: 2")],
            ),
            node(
                "c",
                &[(Warning, "x: 1"), (Healthy, "y: 3"), (Critical, "z: 2")],
            ),
        ]);
        let told: Vec<_> = merged
            .iter()
            .map(|one| (one.severity, one.what.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                (Warning, "x: 1"),
                (Healthy, "y: sound at every primary"),
                (Critical, "z: 2; at b, c"),
            ]
        );
        assert!(merge(Vec::new()).is_empty());
    }
}
