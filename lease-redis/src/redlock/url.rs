//! URLs of a quorum.

use lease_core::InvalidInput;

use super::RedlockOptions;
use crate::RedisOptions;
use crate::url::Hosts;

/// Redis's own.
const PORT: u16 = 6379;

fn bad(why: impl Into<String>) -> InvalidInput {
    InvalidInput::Url(why.into())
}

pub(super) fn parse(text: &str) -> Result<RedlockOptions, InvalidInput> {
    let given = text.split_once("://").map(|(scheme, _)| scheme);
    let is = |scheme| given.is_some_and(|given| given.eq_ignore_ascii_case(scheme));
    let scheme = match (is("redlock"), is("redlocks")) {
        (true, _) => "redis",
        (_, true) => "rediss",
        _ => {
            return Err(bad(
                "the URL of a quorum of Redis servers is written redlock://host:port,host:port, or \
                 redlocks://… for TLS",
            ));
        }
    };
    let hosts = Hosts::read(text, PORT)?;
    let (mut nodes, mut quarantine) = (Vec::new(), None);
    for server in hosts.servers() {
        let url = hosts.url(scheme, server, hosts.path(), hosts.query());
        let options = RedisOptions::from_url(&url)?;
        if options.wait.is_some() {
            return Err(bad(
                "the nodes of a quorum wait for no replicas: the other nodes are their copies; take \
                 wait_replicas and wait_timeout_ms away",
            ));
        }
        if options.durable {
            return Err(bad(
                "durable changes nothing in a quorum, where every node has a quarantine; take it \
                 away",
            ));
        }
        quarantine = options.quarantine;
        nodes.push((server.clone(), options));
    }
    let options = RedlockOptions::new(nodes)?;
    Ok(match quarantine {
        Some(max_ttl) => options.quarantine(max_ttl),
        None => options,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nodes_share_everything_but_their_place() {
        let url = "redlock://u:p%40@A,b:7000,[::1]/2?prefix=q&connect_timeout_ms=9";
        let options = parse(url).unwrap();
        let names: Vec<_> = options.node_names().collect();
        assert_eq!(names, ["a:6379", "b:7000", "[::1]:6379"]);
        assert_eq!(options.quarantine.get(), Duration::from_secs(60));
        for (_, node) in &options.nodes {
            assert_eq!(node.quarantine, Some(options.quarantine));
            assert_eq!(node.connect_timeout, Duration::from_millis(9));
            let shown = format!("{node:?}");
            assert!(
                shown.contains("database: 2") && !shown.contains("p@"),
                "{shown}"
            );
        }
        let options = parse("redlock://a,b,c?quarantine_ms=5000").unwrap();
        assert_eq!(options.quarantine.get(), Duration::from_secs(5));
        assert_eq!(options.nodes[2].1.quarantine, Some(options.quarantine));
        #[cfg(feature = "tls")]
        {
            let shown = format!("{:?}", parse("redlocks://a").unwrap());
            assert!(shown.contains("tls: true"), "{shown}");
        }
        // As many as the user likes: the doctor has a word on even numbers.
        assert_eq!(parse("redlock://a,b").unwrap().nodes.len(), 2);
    }

    #[test]
    fn a_mistake_is_named_and_no_secret_is() {
        for (url, words) in [
            ("redlock:a", "redlock://host:port"),
            ("redis://a,b", "redlock://host:port"),
            ("redlock://a,b,A:6379", "a:6379 twice"),
            ("redlock://u:secret@a,b/x", "the number of the database"),
            ("redlock://u:secret@a,b?durable=true", "durable"),
            (
                "redlock://u:secret@a?wait_replicas=1&wait_timeout_ms=5",
                "wait_replicas",
            ),
            ("redlock://a,b?quarantine_ms=1", "quarantine_ms"),
            ("redlock://a,b?quorum=2", "not an option"),
            ("redlock://u:secret@a,u:secret@b", "once"),
        ] {
            let said = parse(url).unwrap_err().to_string();
            assert!(said.contains(words), "{url}: {said}");
            assert!(!said.contains("secret"), "{url}: {said}");
        }
    }

    #[test]
    fn nodes_of_ones_own_are_checked() {
        let node = || RedisOptions::from_url("redis://a").unwrap();
        let new = |node: RedisOptions| RedlockOptions::new([("a", node)]);
        assert!(new(node()).is_ok());
        assert!(new(node().durable(true)).is_err());
        let waiting = node().wait_for_replicas(1, Duration::from_secs(1));
        assert!(new(waiting).is_err());
        // Names are the quorum's business.
        let twice = RedlockOptions::new([("a", node()), ("a", node())]).unwrap();
        assert!(twice.open_lazily().is_err());
        let none = RedlockOptions::new(Vec::<(String, RedisOptions)>::new());
        assert!(none.unwrap().open_lazily().is_err());
    }
}
