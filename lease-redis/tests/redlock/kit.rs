//! Nodes, and stores on them.

use std::time::Duration;

use lease_conformance::servers::redis::{RedisNodes, RedisServer};
use lease_core::{AcquireOutcome, LeaseBackend, Ttl};
use lease_redis::{InitReport, RedlockOptions, RedlockStore};

/// Short enough to be waited out.
pub(crate) const QUARANTINE: Duration = Duration::from_millis(1500);

pub(crate) fn start(count: usize) -> RedisNodes {
    RedisNodes::start(count, &RedisServer::builder()).unwrap()
}

pub(crate) fn options(hosts: &str) -> RedlockOptions {
    let options = RedlockOptions::from_url(&format!("redlock://{hosts}")).unwrap();
    options.quarantine(Ttl::new(QUARANTINE).unwrap())
}

/// With a quarantine that no test outlasts.
pub(crate) fn lasting(hosts: &str) -> RedlockOptions {
    RedlockOptions::from_url(&format!("redlock://{hosts}")).unwrap()
}

pub(crate) async fn initialised(options: RedlockOptions) -> InitReport {
    let report = options.init().await.unwrap();
    assert!(report.is_done(), "{report:?}");
    report
}

/// A new quorum, open for grants.
pub(crate) async fn opened(options: RedlockOptions) -> RedlockStore {
    initialised(options.clone()).await;
    options.open().await.unwrap()
}

/// Asked until there is an answer, each time for another owner.
pub(crate) async fn asked(store: &RedlockStore, name: &str, ms: u64) -> AcquireOutcome {
    let ask = || async {
        let request = crate::support::request(name, ms);
        store.acquire(&request).await
    };
    crate::support::persist(ask).await
}
