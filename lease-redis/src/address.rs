//! Where a server of many is, in the others' words.

use std::fmt;
use std::sync::Arc;

use redis::{ConnectionAddr, RedisResult};

use crate::client::Client;

/// Where a server is, as clients reach it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Address {
    pub(crate) host: Arc<str>,
    pub(crate) port: u16,
}

impl Address {
    /// Of a connection by TCP, with or without TLS.
    pub(crate) fn of(at: &ConnectionAddr) -> Option<Self> {
        match at {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self {
                    host: Arc::from(host.as_str()),
                    port: *port,
                })
            }
            _ => None,
        }
    }

    /// A client of the server here that is else as `client` is, one by TCP.
    pub(crate) fn client(&self, client: &Client) -> RedisResult<Client> {
        let info = client.info().clone();
        let mut at = info.addr().clone();
        match &mut at {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                *host = self.host.to_string();
                *port = self.port;
            }
            _ => at = ConnectionAddr::Tcp(self.host.to_string(), self.port),
        }
        client.with(info.set_addr(at))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}
