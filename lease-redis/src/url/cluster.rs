//! `redis+cluster://`: some nodes of a Redis Cluster.

use lease_core::InvalidInput;

use super::bad;
use super::hosts::Hosts;
use crate::RedisOptions;
use crate::cluster::Seeds;
use crate::servers::Servers;

const PORT: u16 = 6379;

/// Whether these nodes speak TLS; `None` for the scheme of something else.
pub(super) fn tls(text: &str) -> Option<bool> {
    let (scheme, _) = text.split_once("://")?;
    match scheme.to_ascii_lowercase().as_str() {
        "redis+cluster" | "valkey+cluster" => Some(false),
        "rediss+cluster" | "valkeys+cluster" => Some(true),
        _ => None,
    }
}

pub(super) fn parse(text: &str, tls: bool) -> Result<RedisOptions, InvalidInput> {
    let hosts = Hosts::read(text, PORT)?;
    if !matches!(hosts.path(), "" | "0") {
        return Err(bad(
            "a Redis Cluster has no database but 0, so its URL ends behind the last node: \
             redis+cluster://host:port,host:port?options",
        ));
    }
    let scheme = if tls { "rediss" } else { "redis" };
    let one = |server: &String| super::parse(&hosts.url(scheme, server, "", hosts.query()));
    let mut options = Vec::new();
    for server in hosts.servers() {
        options.push(one(server)?);
    }
    let clients: Vec<_> = options
        .iter()
        .map(|one| one.servers.client().clone())
        .collect();
    match (options.into_iter().next(), clients.split_first()) {
        (Some(options), Some((first, others))) => Ok(RedisOptions {
            servers: Servers::Cluster(Box::new(Seeds::new(first.clone(), others))),
            ..options
        }),
        // `Hosts` has one at least.
        _ => Err(bad("a Redis URL names no host")),
    }
}
