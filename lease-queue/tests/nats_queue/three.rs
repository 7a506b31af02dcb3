//! One cluster for all cases, with streams of three replicas, and queues of its own
//! for each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::FixtureError;
use lease_conformance::queue::{QueueFixture, QueueTarget, Wrapped};
use lease_conformance::servers::nats::cluster::NatsCluster;
use lease_queue::QueueStore;
use lease_queue::nats::NatsOptions;

use crate::renamed::Renamed;

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
    case: String,
}

#[async_trait]
impl QueueFixture for ThreeServers {
    async fn open(&self) -> Result<Box<dyn QueueTarget>, FixtureError> {
        let mut cluster = self.cluster.lock().unwrap_or_else(|e| e.into_inner());
        let cluster = match &*cluster {
            Some(cluster) => Arc::clone(cluster),
            None => Arc::clone(cluster.insert(Arc::new(NatsCluster::start_new()?))),
        };
        let case = self.cases.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Three {
            cluster,
            case: format!("case {case}"),
        }))
    }
}

#[async_trait]
impl QueueTarget for Three {
    async fn client(&self) -> Result<Arc<dyn QueueStore>, FixtureError> {
        let options = NatsOptions::from_url(&self.cluster.url().to_string())?;
        let store = crate::client(options.response_timeout(ELECTED)).await?;
        let case = self.case.clone();
        Ok(Arc::new(Wrapped(Renamed { store, case })))
    }
}
