//! The store on a Redis Cluster whose primaries fail, hand over and move slots.
//!
//! Runs under load last `LEASES_REDIS_FAULT_SECONDS` each (3 by default).
// What a run saw is shown when it fails.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../faults/holder.rs"]
mod holder;
// Its own harm is random in places.
#[allow(dead_code)]
#[path = "../faults/load.rs"]
mod load;
#[path = "../support/mod.rs"]
mod support;

mod cut;
mod doctor;
mod failover;
mod gates;
mod list;
mod moves;
mod names;
mod quarantine;
mod refusals;
mod runtimes;
mod takeover;
mod wake;

use std::sync::Arc;

use lease_conformance::servers::ServerError;
use lease_conformance::servers::redis::cluster::{ClusterUrl, RedisCluster};
use lease_redis::{RedisOptions, RedisStore};

fn options(url: &ClusterUrl) -> RedisOptions {
    RedisOptions::from_url(&url.to_string()).unwrap()
}

async fn store(cluster: &RedisCluster) -> RedisStore {
    options(&cluster.url()).open().await.unwrap()
}

/// The name of a key's record, as the store spells it.
fn record(key: &str) -> String {
    let key = key.replace('%', "%25");
    format!("leases:{{{}}}", key.replace('{', "%7B").replace('}', "%7D"))
}

/// Runs what blocks, away from the threads of the clients.
async fn harm<T, F>(cluster: &Arc<RedisCluster>, act: F) -> T
where
    T: Send + 'static,
    F: FnOnce(&RedisCluster) -> Result<T, ServerError> + Send + 'static,
{
    let cluster = Arc::clone(cluster);
    let done = tokio::task::spawn_blocking(move || act(&cluster));
    done.await.unwrap().unwrap()
}

/// A key with this beginning in a slot of this node.
fn key_at(cluster: &RedisCluster, begin: &str, node: usize) -> String {
    let names = (0..1000).map(|number| format!("{begin}{number}"));
    let mut names = names.filter(|name| cluster.owner_of(&record(name)).unwrap() == node);
    names.next().unwrap()
}
