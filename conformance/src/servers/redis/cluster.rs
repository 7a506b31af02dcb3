//! A Redis Cluster of the test's own: three primaries with a replica each.
//!
//! ```
//! use lease_conformance::servers::redis::cluster::{Failover, RedisCluster};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = RedisCluster::builder().start()?;
//! let before = cluster.owner_of("color")?;
//! cluster.failover("color", Failover::Agreed)?;
//! assert_ne!(cluster.owner_of("color")?, before);
//! println!("connect to {}", cluster.url());
//! # Ok(())
//! # }
//! ```
//!
//! Nodes are known by their number, from 0 to 5, which stays the same whatever
//! roles they take. Each is a [`RedisServer`] with all that this can do.
//!
//! # How it starts in a tenth of a second
//! A primary that starts waits for two seconds before it takes writes, and nodes
//! that meet gossip for as long. So all nodes start with a written-down picture
//! of the cluster in which those are replicas that are to be the primaries, and
//! these take over by `CLUSTER FAILOVER TAKEOVER`, which waits for nothing.

mod form;
mod hooks;
mod moves;
mod view;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tempfile::TempDir;

use super::config::{ADMIN, Persistence, RedisBuilder};
use super::{RedisServer, ServerError};
use crate::ports::PortClaim;
use crate::proxy::FaultProxy;
use crate::servers::tls::TlsFiles;

/// Nodes of every cluster; half of them are primaries.
pub const NODES: usize = 6;
/// All hash slots.
pub const SLOTS: u16 = 16_384;

const PRIMARIES: usize = NODES / 2;

/// Settings of a [`RedisCluster`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ClusterBuilder {
    node: RedisBuilder,
    node_timeout: Duration,
    proxied: bool,
    tls: bool,
}

impl Default for ClusterBuilder {
    fn default() -> Self {
        Self {
            node: RedisBuilder::default(),
            node_timeout: Duration::from_secs(1),
            proxied: false,
            tls: false,
        }
    }
}

impl ClusterBuilder {
    /// What survives the end of a node; nothing by default.
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.node = self.node.persistence(persistence);
        self
    }

    /// Nobody may do anything without a user's name.
    pub fn default_user_off(mut self) -> Self {
        self.node = self.node.default_user_off();
        self
    }

    /// One more user on every node: see [`RedisBuilder::user`].
    pub fn user(mut self, acl: &str) -> Self {
        self.node = self.node.user(acl);
        self
    }

    /// One more line of every node's `redis.conf`.
    pub fn config(mut self, line: &str) -> Self {
        self.node = self.node.config(line);
        self
    }

    /// `cluster-node-timeout`: a primary that is silent for so long is voted
    /// away. A second by default.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// A [`FaultProxy`] in front of each node, which is the address that the
    /// cluster tells its clients.
    ///
    /// Replicas come to their primaries by it, too: Redis knows one address of a
    /// node. The nodes' own talk, by which they vote, does not.
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// TLS alone, among the nodes too, with certificates for `localhost` and
    /// `127.0.0.1` by one authority ([`RedisCluster::authority_pem`]).
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Starts it; returns when every node serves and every replica follows.
    ///
    /// # Errors
    /// A program that is missing, or nodes that do not come together.
    pub fn start(self) -> Result<RedisCluster, ServerError> {
        form::form(self)
    }
}

/// A running cluster; dropping it kills all nodes.
#[derive(Debug)]
pub struct RedisCluster {
    // Dropped in this order.
    nodes: Vec<Node>,
    /// The password by which replicas log in at their primaries.
    password: String,
    /// Which node is asked first.
    turn: AtomicUsize,
    /// With their folder.
    tls: Option<(TlsFiles, TempDir)>,
}

#[derive(Debug)]
struct Node {
    id: String,
    server: RedisServer,
    proxy: Option<Arc<FaultProxy>>,
    /// The port of the nodes' own talk.
    _bus: PortClaim,
}

/// How a replica takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failover {
    /// In agreement with its primary, which stops and hands over: nothing is
    /// lost.
    Agreed,
    /// Without its primary, which may be gone, and by the vote of the others.
    Forced,
    /// Without asking anybody, whatever it has: what did not reach it is lost.
    Takeover,
}

impl RedisCluster {
    /// Settings for a cluster.
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// One node, by its number.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn node(&self, number: usize) -> &RedisServer {
        &self.nodes[number].server
    }

    /// All nodes, by their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().map(|node| &node.server)
    }

    /// The proxy in front of a node, if the cluster was built with them.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn proxy(&self, number: usize) -> Option<&FaultProxy> {
        self.nodes[number].proxy.as_deref()
    }

    /// Where clients come to a node.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn address(&self, number: usize) -> SocketAddr {
        self.nodes[number].address()
    }

    /// The certificate, in a PEM file, that clients must trust; `None` without
    /// TLS.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&Path> {
        let (files, _) = self.tls.as_ref()?;
        Some(&files.authority)
    }

    /// How to connect: by the addresses of three nodes, as a user who may do
    /// everything.
    #[must_use]
    pub fn url(&self) -> ClusterUrl {
        let open = self.nodes[0].server.settings.default_user == super::DefaultUser::Open;
        ClusterUrl {
            authority: self.authority_pem().map(Path::to_owned),
            login: (!open).then(|| (REPLICATION.to_owned(), self.password.clone())),
            seeds: (0..PRIMARIES).map(|number| self.address(number)).collect(),
        }
    }
}

/// The user in whose name replicas follow, the same on every node.
const REPLICATION: &str = "kit-replication";

impl Node {
    fn address(&self) -> SocketAddr {
        match &self.proxy {
            Some(proxy) => proxy.address(),
            None => self.server.address(),
        }
    }
}

/// The URL of a cluster; `to_string` gives the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterUrl {
    authority: Option<PathBuf>,
    login: Option<(String, String)>,
    seeds: Vec<SocketAddr>,
}

impl ClusterUrl {
    /// As this user.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.login = Some((name.to_owned(), password.to_owned()));
        self
    }

    /// By these nodes alone.
    #[must_use]
    pub fn seeds(mut self, seeds: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.seeds = seeds.into_iter().collect();
        self
    }
}

impl fmt::Display for ClusterUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.authority {
            Some(_) => "rediss+cluster://",
            None => "redis+cluster://",
        })?;
        if let Some((name, password)) = &self.login {
            let encoded = crate::servers::parts::encoded;
            write!(f, "{}:{}@", encoded(name), encoded(password))?;
        }
        let seeds: Vec<_> = self.seeds.iter().map(SocketAddr::to_string).collect();
        f.write_str(&seeds.join(","))?;
        match &self.authority {
            Some(authority) => write!(f, "?ca={}", authority.display()),
            None => Ok(()),
        }
    }
}
