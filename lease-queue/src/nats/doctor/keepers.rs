//! The servers that keep a stream, as its leader sees them: one connection reaches one
//! server, and the others are known by this alone.

use std::time::Duration;

use async_nats::jetstream::stream::{ClusterInfo, Info, PeerInfo};
use lease_core::{Finding, Severity};

const WHY: &str = "without a majority of them nothing is granted and nothing renewed";

/// Of the servers that keep this stream, where servers are together.
pub(super) fn all(info: &Info) -> Option<Finding> {
    let cluster = info.cluster.as_ref()?;
    Some(judge(&info.config.name, info.config.num_replicas, cluster))
}

fn judge(stream: &str, replicas: usize, cluster: &ClusterInfo) -> Finding {
    let others = names(cluster.replicas.iter());
    let Some(leader) = cluster.leader.as_deref().filter(|name| !name.is_empty()) else {
        let what = format!("the stream {stream} has no leader");
        let advice = match others.as_str() {
            "" => "see whether its servers run, and their logs".to_owned(),
            others => format!("see whether its servers run, and their logs: {others} among them"),
        };
        return Finding::new(Severity::Critical, what, WHY).advice(advice);
    };
    let away: Vec<_> = cluster.replicas.iter().filter_map(behind).collect();
    let there = 1 + cluster.replicas.len();
    let mut what = match others.as_str() {
        "" => format!("the stream {stream}: {leader} has it"),
        others => format!("the stream {stream}: {leader} leads, {others} follow"),
    };
    if away.is_empty() && there >= replicas {
        return Finding::new(Severity::Healthy, what, WHY);
    }
    if !away.is_empty() {
        what += &format!("; not up to date: {}", away.join(", "));
    }
    if there < replicas {
        what += &format!("; it is on {there} servers and not on {replicas}");
    }
    let severity = match there - away.len() > replicas / 2 {
        true => Severity::Warning,
        false => Severity::Critical,
    };
    Finding::new(severity, what, WHY).advice("look at those servers and their logs")
}

/// What this connection does not see.
pub(super) fn unseen(info: &Info, seen: &str) -> Option<Finding> {
    let cluster = info.cluster.as_ref()?;
    let peers = cluster.replicas.iter().map(|peer| peer.name.as_str());
    let others = cluster.leader.as_deref().into_iter().chain(peers);
    let others: Vec<_> = others.filter(|name| *name != seen).collect();
    (!others.is_empty()).then(|| {
        Finding::new(
            Severity::Note,
            format!(
                "not seen from here: the version and settings of {}",
                others.join(", ")
            ),
            "a server tells its own alone, and clients go to another one when theirs is lost",
        )
        .advice("look once by the URL of each server alone")
    })
}

/// A follower that is not up to date, and how far it is behind.
fn behind(peer: &PeerInfo) -> Option<String> {
    let name = &peer.name;
    let seen = Duration::from_secs(peer.active.as_secs());
    if peer.offline {
        return Some(format!("{name} is offline, last seen {seen:?} ago"));
    }
    (!peer.current).then(|| match peer.lag {
        None | Some(0) => format!("{name}, last seen {seen:?} ago"),
        Some(1) => format!("{name} is 1 operation behind"),
        Some(lag) => format!("{name} is {lag} operations behind"),
    })
}

fn names<'a>(peers: impl Iterator<Item = &'a PeerInfo>) -> String {
    let names: Vec<_> = peers.map(|peer| peer.name.as_str()).collect();
    names.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(leader: &str, replicas: &str) -> ClusterInfo {
        let text = format!(r#"{{"name":"c","leader":"{leader}","replicas":[{replicas}]}}"#);
        serde_json::from_str(&text).unwrap()
    }

    fn said(leader: &str, replicas: &str) -> (Severity, String) {
        let finding = judge("s", 3, &told(leader, replicas));
        (finding.severity, finding.what)
    }

    #[test]
    fn each_server_is_named_with_what_it_lacks() {
        let b = r#"{"name":"b","current":true,"active":1}"#;
        let c = r#"{"name":"c","current":true,"active":1}"#;
        let healthy = said("a", &format!("{b},{c}"));
        assert_eq!(healthy.0, Severity::Healthy);
        assert_eq!(healthy.1, "the stream s: a leads, b and c follow");
        let away = r#"{"name":"c","current":false,"offline":true,"active":7500000000}"#;
        let lost = said("a", &format!("{b},{away}"));
        assert_eq!(lost.0, Severity::Warning);
        assert!(
            lost.1
                .ends_with("; not up to date: c is offline, last seen 7s ago"),
            "{lost:?}"
        );
        let late = r#"{"name":"b","current":false,"active":1,"lag":120}"#;
        let alone = said("a", &format!("{late},{away}"));
        assert_eq!(alone.0, Severity::Critical, "{alone:?}");
        assert!(alone.1.contains("b is 120 operations behind, c is offline"));
        let few = said("a", b);
        assert_eq!(few.0, Severity::Warning);
        assert!(
            few.1.ends_with("it is on 2 servers and not on 3"),
            "{few:?}"
        );
        assert_eq!(said("", b).0, Severity::Critical);
    }
}
