//! The suite's hooks, by what the kit can do to a server and to a cluster.

use async_trait::async_trait;

use super::NatsServer;
use super::cluster::NatsCluster;
use crate::fixture::FixtureError;
use crate::hooks::{LoseData, Pause, Restart};

/// By a kill, which loses nothing that was acknowledged; power that fails might.
#[async_trait]
impl Restart for NatsServer {
    async fn restart(&self) -> Result<(), FixtureError> {
        self.kill()?;
        Ok(self.start()?)
    }
}

#[async_trait]
impl LoseData for NatsServer {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        Ok(self.restart_empty()?)
    }
}

#[async_trait]
impl Pause for NatsServer {
    async fn pause(&self) -> Result<(), FixtureError> {
        Ok(NatsServer::pause(self)?)
    }

    async fn resume(&self) -> Result<(), FixtureError> {
        Ok(NatsServer::resume(self)?)
    }
}

/// All nodes are killed, and started again.
#[async_trait]
impl Restart for NatsCluster {
    async fn restart(&self) -> Result<(), FixtureError> {
        for node in self.nodes() {
            node.kill()?;
        }
        Ok(self.start()?)
    }
}

/// All nodes at once.
#[async_trait]
impl Pause for NatsCluster {
    async fn pause(&self) -> Result<(), FixtureError> {
        for node in self.nodes() {
            NatsServer::pause(node)?;
        }
        Ok(())
    }

    async fn resume(&self) -> Result<(), FixtureError> {
        for node in self.nodes() {
            NatsServer::resume(node)?;
        }
        Ok(())
    }
}
