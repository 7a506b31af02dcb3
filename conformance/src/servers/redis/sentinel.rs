//! A primary, its replicas, and three sentinels that watch them.
//!
//! ```
//! use lease_conformance::servers::redis::sentinel::SentinelTrio;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let trio = SentinelTrio::builder().replicas(1).start()?;
//! println!("clients connect to {}", trio.url());
//! let former = trio.primary()?.address();
//! assert_ne!(trio.failover()?.address(), former);
//! # Ok(())
//! # }
//! ```
//!
//! # Who talks to whom
//! Every server with data stands behind a [`FaultProxy`] of its own, its door,
//! and is known to the sentinels and to the other servers by the door's address:
//! so that is what clients are sent to, too. Whatever a door does to clients, it
//! does to the sentinels and to replicas: for shorter than the sentinels'
//! patience it harms clients alone. What parts sentinels and servers without
//! harm to clients is [`hide_from_sentinels`](SentinelTrio::hide_from_sentinels).
//!
//! Sentinels have no doors; one that is paused is as one behind a network that
//! swallows everything.

mod builder;
mod wait;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use builder::SentinelBuilder;

use super::url::Place;
use super::{RedisServer, RedisUrl, ServerError};
use crate::ports::PortClaim;
use crate::proxy::FaultProxy;

/// What the sentinels call the primary.
const NAME: &str = "leases";
/// The user by which sentinels come to the servers with data.
const WATCHER: &str = "lease-conformance-sentinel";
/// Longer than a failover takes that goes well.
const AGAIN: Duration = Duration::from_secs(3);
/// Of so many sentinels, two must agree.
const SENTINELS: usize = 3;

/// Servers with data and the sentinels that watch them; dropping it kills them
/// all. All calls block for as long as what they do takes.
#[derive(Debug)]
pub struct SentinelTrio {
    settings: SentinelBuilder,
    // The watchers end before what they watch.
    sentinels: Vec<RedisServer>,
    nodes: Vec<DataNode>,
    /// Nobody listens here: what follows it has no primary.
    nowhere: PortClaim,
    /// Certificates.
    _folder: TempDir,
}

/// A server with data, and the way to it.
#[derive(Debug)]
pub struct DataNode {
    door: FaultProxy,
    server: RedisServer,
}

impl DataNode {
    /// The server.
    #[must_use]
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// What stands in front of it, for everybody.
    #[must_use]
    pub fn door(&self) -> &FaultProxy {
        &self.door
    }

    /// Where everybody finds it: its door's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.door.address()
    }
}

impl SentinelTrio {
    /// Settings for one.
    pub fn builder() -> SentinelBuilder {
        SentinelBuilder::default()
    }

    /// How to connect: by the sentinels, as a user who may do everything at the
    /// servers with data, and at the sentinels as nobody in particular.
    #[must_use]
    pub fn url(&self) -> RedisUrl {
        let one = self.nodes[0].server.url();
        let tls = matches!(one.place, Place::Tcp { tls: true, .. });
        RedisUrl {
            place: Place::Sentinels {
                addresses: self.sentinels.iter().map(RedisServer::address).collect(),
                name: NAME.to_owned(),
                tls,
                login: None,
            },
            ..one
        }
    }

    /// What the sentinels call the primary.
    #[must_use]
    pub fn name(&self) -> &'static str {
        NAME
    }

    /// The three sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The servers with data, the first primary at first.
    #[must_use]
    pub fn nodes(&self) -> &[DataNode] {
        &self.nodes
    }

    /// Makes the sentinels choose another primary, as an operator does, and
    /// waits until all of them that run name the same one. Replicas may not
    /// follow it yet: see [`settle`](Self::settle).
    ///
    /// # Errors
    /// If they do not within half a minute.
    pub fn failover(&self) -> Result<&DataNode, ServerError> {
        let former = self.primary()?.address();
        let mut ordered: Option<Instant> = None;
        self.until("fail over", || {
            if self.someone_names_another_than(former)? {
                return Ok(true);
            }
            // A sentinel refuses while one is under way, and gives one up when
            // it knows of no replica well enough.
            if ordered.is_none_or(|at| at.elapsed() > AGAIN) {
                let order = ["SENTINEL", "FAILOVER", NAME];
                ordered = self
                    .running()
                    .next()
                    .and_then(|one| one.command(&order).ok())
                    .map(|_| Instant::now());
            }
            Ok(false)
        })?;
        self.primary_other_than(former)
    }

    /// From its return on, no replica gets what is written, and each may be made
    /// the primary without it. Sentinels leave it so for three minutes.
    ///
    /// # Errors
    /// What a server answers.
    pub fn pause_replication(&self) -> Result<(), ServerError> {
        self.set_failover_timeout(Duration::from_secs(180))?;
        let primary = self.primary()?.address();
        let nowhere = (Ipv4Addr::LOCALHOST, self.nowhere.port()).into();
        for replica in self.nodes.iter().filter(|one| one.address() != primary) {
            follow(&replica.server, nowhere)?;
        }
        Ok(())
    }

    /// All servers that run follow the primary again.
    ///
    /// # Errors
    /// If they do not within half a minute.
    pub fn resume_replication(&self) -> Result<(), ServerError> {
        let primary = self.primary()?.address();
        for replica in self.nodes.iter().filter(|one| one.address() != primary) {
            if replica.server.command(&["PING"]).is_ok() {
                follow(&replica.server, primary)?;
            }
        }
        self.set_failover_timeout(self.settings.failover_timeout())?;
        self.settle()
    }

    fn set_failover_timeout(&self, time: Duration) -> Result<(), ServerError> {
        let ms = time.as_millis().to_string();
        for sentinel in self.running() {
            sentinel.command(&["SENTINEL", "SET", NAME, "failover-timeout", &ms])?;
        }
        Ok(())
    }

    /// From now on the sentinels neither look at the servers nor talk: nothing
    /// passes a door but what clients send, and what they are answered. They
    /// answer clients all the same, and see no server's end.
    ///
    /// # Errors
    /// What a sentinel answers.
    pub fn quiet(&self) -> Result<(), ServerError> {
        self.running().try_for_each(builder::quiet)
    }

    /// The sentinels see no more of this server, as if they were cut off from
    /// it, and clients and replicas go on with it: sooner or later another one
    /// is made the primary beside it.
    ///
    /// # Errors
    /// What the server answers.
    pub fn hide_from_sentinels(&self, node: &DataNode) -> Result<(), ServerError> {
        node.server.command(&["ACL", "SETUSER", WATCHER, "off"])?;
        let kill = ["CLIENT", "KILL", "USER", WATCHER];
        node.server.command(&kill).map(drop)
    }

    /// They see it again.
    ///
    /// # Errors
    /// What the server answers.
    pub fn show_to_sentinels(&self, node: &DataNode) -> Result<(), ServerError> {
        let show = ["ACL", "SETUSER", WATCHER, "on"];
        node.server.command(&show).map(drop)
    }
}

/// Written to the server's configuration, as sentinels do.
fn follow(server: &RedisServer, primary: SocketAddr) -> Result<(), ServerError> {
    let (host, port) = (primary.ip().to_string(), primary.port().to_string());
    server.command(&["REPLICAOF", &host, &port])?;
    server.command(&["CONFIG", "REWRITE"]).map(drop)
}
