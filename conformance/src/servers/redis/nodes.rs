//! Independent servers, as the nodes of a quorum are.

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::{RedisBuilder, RedisServer, ServerError};
use crate::fixture::FixtureError;
use crate::hooks::{LoseData, Network, Pause, Restart};
use crate::proxy::FaultProxy;

/// Servers that know nothing of each other.
///
/// As a hook of a fixture it restarts, empties and pauses all of them; take
/// [`servers`](Self::servers) for some.
#[derive(Debug)]
pub struct RedisNodes {
    servers: Vec<RedisServer>,
}

impl RedisNodes {
    /// As many servers as this, all alike.
    ///
    /// # Errors
    /// As of [`RedisBuilder::start`].
    pub fn start(count: usize, server: &RedisBuilder) -> Result<Self, ServerError> {
        let servers = (0..count).map(|_| server.clone().start());
        Ok(Self {
            servers: servers.collect::<Result<_, _>>()?,
        })
    }

    /// The servers.
    #[must_use]
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// What stands in a URL that names them all: `host:port,host:port`.
    #[must_use]
    pub fn hosts(&self) -> String {
        let hosts = self.servers.iter();
        let hosts: Vec<_> = hosts.map(|server| server.address().to_string()).collect();
        hosts.join(",")
    }

    /// A new way to all of them: with one for each client, each can be cut off
    /// from other nodes.
    ///
    /// # Errors
    /// If a proxy does not start.
    pub fn way(&self) -> std::io::Result<NodesWay> {
        let proxies = self.servers.iter();
        let proxies = proxies.map(|server| FaultProxy::start(server.address()));
        Ok(NodesWay {
            proxies: proxies.collect::<Result<_, _>>()?,
        })
    }
}

/// A proxy in front of each node, in their order.
#[derive(Debug)]
pub struct NodesWay {
    proxies: Vec<FaultProxy>,
}

impl NodesWay {
    /// The proxies.
    #[must_use]
    pub fn proxies(&self) -> &[FaultProxy] {
        &self.proxies
    }

    /// As [`RedisNodes::hosts`], by this way.
    #[must_use]
    pub fn hosts(&self) -> String {
        let hosts = self.proxies.iter();
        let hosts: Vec<_> = hosts.map(|proxy| proxy.address().to_string()).collect();
        hosts.join(",")
    }
}

#[async_trait]
impl Restart for RedisNodes {
    async fn restart(&self) -> Result<(), FixtureError> {
        for server in &self.servers {
            Restart::restart(server).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl LoseData for RedisNodes {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        for server in &self.servers {
            server.restart_empty()?;
        }
        Ok(())
    }
}

#[async_trait]
impl Pause for RedisNodes {
    async fn pause(&self) -> Result<(), FixtureError> {
        for server in &self.servers {
            RedisServer::pause(server)?;
        }
        Ok(())
    }

    async fn resume(&self) -> Result<(), FixtureError> {
        for server in &self.servers {
            RedisServer::resume(server)?;
        }
        Ok(())
    }
}

/// On all nodes at once: what is asked of all of them has no reply at all then.
#[async_trait]
impl Network for NodesWay {
    async fn cut(&self) -> Result<(), FixtureError> {
        for proxy in &self.proxies {
            proxy.cut();
        }
        Ok(())
    }

    async fn lose_reply(&self) -> Result<BoxFuture<'static, ()>, FixtureError> {
        let mut lost = Vec::new();
        for proxy in &self.proxies {
            lost.push(Network::lose_reply(proxy).await?);
        }
        Ok(join_all(lost).map(drop).boxed())
    }
}
