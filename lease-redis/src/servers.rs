//! Where the servers are, and how one is reached.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lease_core::StoreError;
use redis::RedisResult;
use tokio::runtime::Handle;

use crate::client::Client;
use crate::cluster::Seeds;
use crate::link::Origin;
use crate::sentinel::{Following, Sentinels, Stay};

/// What a URL names.
#[derive(Clone)]
pub(crate) enum Servers {
    /// One server.
    One(Box<Client>),
    /// The primary that these sentinels name.
    Sentinels(Arc<Sentinels>),
    /// Some nodes of a cluster.
    Cluster(Box<Seeds>),
}

impl Servers {
    pub(crate) fn one(client: Client) -> Self {
        Self::One(Box::new(client))
    }

    pub(crate) fn sentinels(sentinels: Sentinels) -> Self {
        Self::Sentinels(Arc::new(sentinels))
    }

    /// The same with sockets for short messages: see [`Client::tuned`].
    pub(crate) fn tuned(self, response_timeout: Duration) -> RedisResult<Self> {
        Ok(match self {
            Self::One(client) => Self::one(client.tuned(response_timeout)?),
            Self::Sentinels(sentinels) => Self::sentinels(sentinels.tuned(response_timeout)?),
            Self::Cluster(seeds) => Self::Cluster(Box::new(seeds.tuned(response_timeout)?)),
        })
    }

    /// What a link connects to.
    pub(crate) fn origin(&self, connect_timeout: Duration, response_timeout: Duration) -> Origin {
        Origin::Servers {
            servers: self.clone(),
            connect_timeout,
            response_timeout,
        }
    }

    /// A client of the server to use now, and until when to use it, if that may
    /// end. Of a cluster, some node.
    ///
    /// # Errors
    /// As of [`Sentinels::primary`].
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn now(&self, within: Duration) -> Result<(Client, Option<Stay>), StoreError> {
        match self {
            Self::Sentinels(sentinels) => {
                let (client, stay) = sentinels.now(within).await?;
                Ok((client, Some(stay)))
            }
            Self::One(_) | Self::Cluster(_) => Ok((self.client().clone(), None)),
        }
    }

    /// Listens, in this runtime, for another server to be used. What is routed in
    /// a cluster hears of it on its way.
    pub(crate) fn follow(
        &self,
        runtime: &Handle,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Option<Following> {
        match self {
            Self::One(_) | Self::Cluster(_) => None,
            Self::Sentinels(sentinels) => Some(Following::start(
                sentinels,
                runtime,
                connect_timeout,
                response_timeout,
            )),
        }
    }

    /// How a server is reached: its address (of many, some server's), the login,
    /// the database.
    pub(crate) fn client(&self) -> &Client {
        match self {
            Self::One(client) => client,
            Self::Sentinels(sentinels) => sentinels.node(),
            Self::Cluster(seeds) => seeds.first(),
        }
    }

    /// Whether a server that is away for a while is replaced by another.
    pub(crate) fn fail_over(&self) -> bool {
        match self {
            Self::One(_) => false,
            Self::Sentinels(_) | Self::Cluster(_) => true,
        }
    }

    /// What kind of store it is, as its guarantees name it.
    pub(crate) fn store(&self) -> &'static str {
        match self {
            Self::One(_) => "redis",
            Self::Sentinels(_) => "redis-sentinel",
            Self::Cluster(_) => "redis-cluster",
        }
    }

    /// Says where the servers are, and nothing of who logs in and how.
    pub(crate) fn show(&self, shown: &mut fmt::DebugStruct<'_, '_>) {
        let info = self.client().info();
        match self {
            Self::One(_) => shown.field("server", &format_args!("{}", info.addr())),
            Self::Sentinels(sentinels) => {
                let place = |one: &Client| one.info().addr().to_string();
                let all: Vec<_> = sentinels.all().iter().map(place).collect();
                shown
                    .field("sentinels", &all)
                    .field("primary", &sentinels.name())
            }
            Self::Cluster(seeds) => {
                let all: Vec<_> = seeds.addresses().iter().map(ToString::to_string).collect();
                shown.field("cluster", &all)
            }
        };
        let tls = matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. });
        shown.field("tls", &tls);
        // A cluster has one.
        if !matches!(self, Self::Cluster(_)) {
            shown.field("database", &info.redis_settings().db());
        }
        shown.field("protocol", &info.redis_settings().protocol());
    }
}
