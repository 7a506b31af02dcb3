//! The nodes that a URL names, and how any node is reached.

use std::time::Duration;

use redis::RedisResult;

use crate::address::Address;
use crate::client::Client;

/// Some nodes of a cluster, one at least. What it is to log in at one of them is
/// the same at all others.
#[derive(Clone)]
pub(crate) struct Seeds {
    client: Client,
    addresses: Vec<Address>,
}

impl Seeds {
    /// These clients differ in nothing but their addresses.
    pub(crate) fn new(first: Client, others: &[Client]) -> Self {
        let all = std::iter::once(&first).chain(others);
        let addresses = all.filter_map(|client| Address::of(client.info().addr()));
        Self {
            addresses: addresses.collect(),
            client: first,
        }
    }

    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Of one of them.
    pub(crate) fn first(&self) -> &Client {
        &self.client
    }

    /// For the node at this address.
    pub(crate) fn client(&self, address: &Address) -> RedisResult<Client> {
        address.client(&self.client)
    }

    /// The same with sockets for short messages: see [`Client::tuned`].
    pub(crate) fn tuned(self, response_timeout: Duration) -> RedisResult<Self> {
        Ok(Self {
            client: self.client.tuned(response_timeout)?,
            ..self
        })
    }
}
