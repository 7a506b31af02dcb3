//! A cluster of its own for each case, all of whose servers may be killed at once, and
//! the way to one of them cut.

use std::sync::Arc;

use async_trait::async_trait;
use lease_conformance::proxy::FaultProxy;
use lease_conformance::queue::{QueueFixture, QueueTarget};
use lease_conformance::servers::nats::cluster::NatsCluster;
use lease_conformance::{FixtureError, Network, Restart};
use lease_queue::QueueStore;
use lease_queue::nats::NatsOptions;

pub(crate) struct OwnCluster;

struct Own {
    cluster: NatsCluster,
    proxy: FaultProxy,
}

#[async_trait]
impl QueueFixture for OwnCluster {
    async fn open(&self) -> Result<Box<dyn QueueTarget>, FixtureError> {
        let cluster = NatsCluster::start_new()?;
        let proxy = FaultProxy::start(cluster.node(0).address())?;
        Ok(Box::new(Own { cluster, proxy }))
    }
}

#[async_trait]
impl QueueTarget for Own {
    async fn client(&self) -> Result<Arc<dyn QueueStore>, FixtureError> {
        // The servers tell of each other, by their own addresses.
        let url = self.cluster.node(0).url().through(self.proxy.address());
        crate::client(NatsOptions::from_url(&url.to_string())?).await
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(&self.proxy)
    }
}

#[async_trait]
impl Restart for Own {
    async fn restart(&self) -> Result<(), FixtureError> {
        for node in self.cluster.nodes() {
            node.kill()?;
        }
        Ok(self.cluster.start()?)
    }
}
