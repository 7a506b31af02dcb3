//! The suite's hooks, by what the kit can do to a cluster: to all of its nodes.
//!
//! They block their thread, a restart for two seconds.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, FutureExt, select_all};

use super::{RedisCluster, ServerError};
use crate::fixture::FixtureError;
use crate::hooks::{LoseData, Network, Pause, Restart};
use crate::proxy::{FaultProxy, On, Then};

/// By a kill of all nodes.
#[async_trait]
impl Restart for RedisCluster {
    async fn restart(&self) -> Result<(), FixtureError> {
        Ok(RedisCluster::restart(self)?)
    }
}

#[async_trait]
impl LoseData for RedisCluster {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        Ok(self.restart_empty()?)
    }
}

/// For less than the node timeout: the nodes do not miss one another.
#[async_trait]
impl Pause for RedisCluster {
    async fn pause(&self) -> Result<(), FixtureError> {
        Ok(self.nodes().try_for_each(|node| node.pause())?)
    }

    async fn resume(&self) -> Result<(), FixtureError> {
        Ok(self.nodes().try_for_each(|node| node.resume())?)
    }
}

/// Of a cluster with proxies. Clients that are to lose a reply must have come to
/// every node before.
#[async_trait]
impl Network for RedisCluster {
    async fn cut(&self) -> Result<(), FixtureError> {
        self.proxies().for_each(|proxy| proxy.cut());
        Ok(())
    }

    async fn lose_reply(&self) -> Result<BoxFuture<'static, ()>, FixtureError> {
        let replicas = self.replicas_at_proxies()?;
        let proxies: Vec<_> = self.proxies().map(Arc::clone).collect();
        let mut armed = Vec::new();
        for proxy in &proxies {
            for connection in proxy.connections() {
                if !replicas.contains(&connection.client) {
                    armed.push(proxy.lose_reply(Then::Cut, On::Connection(connection.id)));
                }
            }
        }
        let first = async move {
            let mut all: Vec<_> = armed.iter().map(|armed| armed.happened().boxed()).collect();
            // One whose connection has ended never happens.
            while !all.is_empty() {
                let (happened, _, others) = select_all(all).await;
                if happened.is_ok() {
                    // The others must not.
                    for proxy in &proxies {
                        let _ = proxy.heal();
                    }
                    return;
                }
                all = others;
            }
            std::future::pending::<()>().await;
        };
        Ok(first.boxed())
    }
}

impl RedisCluster {
    fn proxies(&self) -> impl Iterator<Item = &Arc<FaultProxy>> {
        self.nodes.iter().filter_map(|node| node.proxy.as_ref())
    }

    /// By which addresses replicas have come to the proxies of their primaries.
    fn replicas_at_proxies(&self) -> Result<Vec<SocketAddr>, ServerError> {
        let mut addresses = Vec::new();
        for node in self.nodes() {
            let list = node.command(&["CLIENT", "LIST", "TYPE", "master"])?;
            let words = list.text().unwrap_or_default().split_whitespace();
            let own = words.filter_map(|word| word.strip_prefix("laddr="));
            addresses.extend(own.filter_map(|address| address.parse::<SocketAddr>().ok()));
        }
        Ok(addresses)
    }
}
