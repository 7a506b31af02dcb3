//! A server of its own for each case, so that it may be killed and paused.

use std::sync::Arc;

use async_trait::async_trait;
use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::nats::NatsServer;
use lease_conformance::{Fixture, FixtureError, Network, Pause, Restart, Spoiling, Store};
use lease_core::LeaseBackend;
use lease_queue::nats::NatsOptions;

pub(crate) struct OneServer;

pub(crate) struct One {
    pub(crate) server: NatsServer,
    proxy: FaultProxy,
}

#[async_trait]
impl Fixture for OneServer {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        let server = NatsServer::builder().start()?;
        let proxy = FaultProxy::start(server.address())?;
        Ok(Box::new(One { server, proxy }))
    }
}

#[async_trait]
impl Store for One {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let url = self.server.url().through(self.proxy.address());
        crate::client(NatsOptions::from_url(&url.to_string())?, crate::QUEUE).await
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(&self.server)
    }

    fn pause(&self) -> Option<&dyn Pause> {
        Some(&self.server)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(&self.proxy)
    }

    fn spoiling(&self) -> Option<&dyn Spoiling> {
        Some(self)
    }
}
