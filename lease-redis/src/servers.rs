//! Where the servers are, and how one is reached.

use std::fmt;
use std::time::Duration;

use redis::{Client, RedisResult};

use crate::client;
use crate::link::Origin;

/// What a URL names.
#[derive(Clone)]
pub(crate) enum Servers {
    /// One server.
    One(Box<Client>),
}

impl Servers {
    pub(crate) fn one(client: Client) -> Self {
        Self::One(Box::new(client))
    }

    /// The same with sockets for short messages: see [`client::tuned`].
    pub(crate) fn tuned(self, response_timeout: Duration) -> RedisResult<Self> {
        Ok(match self {
            Self::One(client) => Self::one(client::tuned(*client, response_timeout)?),
        })
    }

    /// What a link connects to.
    pub(crate) fn origin(&self, connect_timeout: Duration, response_timeout: Duration) -> Origin {
        match self {
            Self::One(client) => Origin::Client {
                client: client.clone(),
                connect_timeout,
                response_timeout,
            },
        }
    }

    /// How a server is reached: its address (of many, some server's), the login,
    /// the database.
    pub(crate) fn client(&self) -> &Client {
        match self {
            Self::One(client) => client,
        }
    }

    /// What kind of store it is, as its guarantees name it.
    pub(crate) fn store(&self) -> &'static str {
        match self {
            Self::One(_) => "redis",
        }
    }

    /// Says where the servers are, and nothing of who logs in and how.
    pub(crate) fn show(&self, shown: &mut fmt::DebugStruct<'_, '_>) {
        let info = self.client().get_connection_info();
        shown
            .field("server", &format_args!("{}", info.addr()))
            .field(
                "tls",
                &matches!(info.addr(), redis::ConnectionAddr::TcpTls { .. }),
            )
            .field("database", &info.redis_settings().db())
            .field("protocol", &info.redis_settings().protocol());
    }
}
