//! What the tests need of sentinels.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::servers::ServerError;
use lease_conformance::servers::redis::RedisServer;
use lease_conformance::servers::redis::sentinel::{DataNode, SentinelBuilder, SentinelTrio};
use lease_core::{Leases, SystemClock};
use lease_redis::{RedisOptions, RedisStore};

use crate::support;

/// Starts them away from the threads of the test's clients.
pub(crate) async fn start(builder: SentinelBuilder) -> Arc<SentinelTrio> {
    let started = tokio::task::spawn_blocking(move || builder.start());
    Arc::new(started.await.unwrap().unwrap())
}

/// One replica, which is enough for one failover at a time.
pub(crate) async fn pair() -> Arc<SentinelTrio> {
    start(SentinelTrio::builder().replicas(1)).await
}

/// Runs what blocks.
pub(crate) async fn act<T: Send + 'static>(
    trio: &Arc<SentinelTrio>,
    act: impl FnOnce(&SentinelTrio) -> Result<T, ServerError> + Send + 'static,
) -> T {
    let trio = Arc::clone(trio);
    let done = tokio::task::spawn_blocking(move || act(&trio));
    done.await.unwrap().unwrap()
}

pub(crate) async fn failover(trio: &Arc<SentinelTrio>) {
    act(trio, |trio| trio.failover().map(drop)).await;
}

pub(crate) fn options(trio: &SentinelTrio) -> RedisOptions {
    support::options(&trio.url())
}

pub(crate) async fn store(trio: &SentinelTrio) -> RedisStore {
    options(trio).open().await.unwrap()
}

pub(crate) fn client(store: RedisStore) -> Leases {
    Leases::builder(Arc::new(store))
        .clock(Arc::new(SystemClock::new()))
        .build()
}

/// Whether this server has the record of the key.
pub(crate) fn has(server: &RedisServer, name: &str) -> bool {
    let exists = server.command(&["EXISTS", &format!("leases:{{{name}}}")]);
    exists.unwrap().integer() == Some(1)
}

/// The primary, when all are of one mind.
pub(crate) async fn primary(trio: &Arc<SentinelTrio>) -> usize {
    act(trio, |trio| {
        let primary = trio.primary()?.address();
        let nodes = trio.nodes().iter();
        Ok(nodes.take_while(|node| node.address() != primary).count())
    })
    .await
}

pub(crate) fn node(trio: &SentinelTrio, at: usize) -> &DataNode {
    &trio.nodes()[at]
}

/// Looks until it is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !so() {
        assert!(started.elapsed() < support::PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
