//! A server of its own for each case, so that it may be killed.

use std::sync::Arc;

use async_trait::async_trait;
use lease_conformance::proxy::FaultProxy;
use lease_conformance::queue::{QueueFixture, QueueTarget};
use lease_conformance::servers::nats::NatsServer;
use lease_conformance::{FixtureError, Network, Restart};
use lease_queue::QueueStore;
use lease_queue::nats::NatsOptions;

pub(crate) struct OneServer;

struct One {
    server: NatsServer,
    proxy: FaultProxy,
}

#[async_trait]
impl QueueFixture for OneServer {
    async fn open(&self) -> Result<Box<dyn QueueTarget>, FixtureError> {
        let server = NatsServer::builder().start()?;
        let proxy = FaultProxy::start(server.address())?;
        Ok(Box::new(One { server, proxy }))
    }
}

#[async_trait]
impl QueueTarget for One {
    async fn client(&self) -> Result<Arc<dyn QueueStore>, FixtureError> {
        let url = self.server.url().through(self.proxy.address());
        crate::client(NatsOptions::from_url(&url.to_string())?).await
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(&self.server)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(&self.proxy)
    }
}
