//! One cluster and one stream of three replicas for all cases, and a queue for each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::servers::nats::cluster::NatsCluster;
use lease_conformance::{Fixture, FixtureError, Store};
use lease_core::LeaseBackend;
use lease_queue::nats::NatsOptions;

/// An election takes up to nine seconds, and a busy machine has one now and then: what is
/// asked meanwhile is answered after it.
const ELECTED: Duration = Duration::from_secs(20);

/// Started by the first case.
#[derive(Default)]
pub(crate) struct ThreeServers {
    cluster: Mutex<Option<Arc<NatsCluster>>>,
    cases: AtomicUsize,
}

struct Three {
    cluster: Arc<NatsCluster>,
    queue: String,
}

#[async_trait]
impl Fixture for ThreeServers {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        let mut cluster = self.cluster.lock().unwrap_or_else(|e| e.into_inner());
        let cluster = match &*cluster {
            Some(cluster) => Arc::clone(cluster),
            None => Arc::clone(cluster.insert(Arc::new(NatsCluster::start_new()?))),
        };
        let case = self.cases.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Three {
            cluster,
            queue: format!("case {case}"),
        }))
    }
}

#[async_trait]
impl Store for Three {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let options = NatsOptions::from_url(&self.cluster.url().to_string())?;
        crate::client(options.response_timeout(ELECTED), &self.queue).await
    }
}
