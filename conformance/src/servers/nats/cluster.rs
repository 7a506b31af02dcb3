//! Three nodes that keep every stream of three replicas together.
//!
//! ```
//! use lease_conformance::servers::nats::cluster::NatsCluster;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let cluster = NatsCluster::start_new()?;
//! let leader = cluster.meta_leader()?;
//! cluster.node(leader).kill()?;
//! cluster.until_led_without(leader)?;
//! cluster.start()?;
//! println!("connect to {}", cluster.url());
//! # Ok(())
//! # }
//! ```
//!
//! Nodes are known by their number, from 0 to 2. Each is a [`NatsServer`] with all
//! that this can do.

use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::config::{Member, NatsBuilder};
use super::{NatsServer, NatsUrl, ServerError, port_is_taken};
use crate::ports::PortClaim;
use crate::servers::parts::{LIMIT, PORTS, claim, until};

/// For an election, of which a busy machine needs several.
const ELECTED: Duration = Duration::from_secs(90);

/// Nodes of every cluster.
pub const NODES: usize = 3;

/// A running cluster; dropping it kills all nodes.
#[derive(Debug)]
pub struct NatsCluster {
    // Dropped in this order.
    nodes: Vec<NatsServer>,
    _routes: Vec<PortClaim>,
}

impl NatsCluster {
    /// Starts one; returns when all nodes follow one leader of JetStream and a
    /// stream of three replicas can be made.
    ///
    /// # Errors
    /// A program that is missing, or nodes that do not come together.
    pub fn start_new() -> Result<Self, ServerError> {
        for _ in 1..PORTS {
            match Self::form() {
                Err(error) if port_is_taken(&error) => {}
                other => return other,
            }
        }
        Self::form()
    }

    fn form() -> Result<Self, ServerError> {
        let routes: Vec<_> = (0..NODES).map(|_| claim()).collect::<Result<_, _>>()?;
        let ports: Vec<_> = routes.iter().map(PortClaim::port).collect();
        let node = |number: usize| {
            NatsServer::prepare(NatsBuilder {
                member: Some(Member {
                    name: name(number),
                    port: ports[number],
                    others: ports
                        .iter()
                        .copied()
                        .filter(|p| *p != ports[number])
                        .collect(),
                }),
                ..NatsBuilder::default()
            })
        };
        let cluster = Self {
            nodes: (0..NODES).map(node).collect::<Result<_, _>>()?,
            _routes: routes,
        };
        cluster.start()?;
        cluster.until_there_is_room()?;
        Ok(cluster)
    }

    /// Starts all nodes that do not run, with their data; returns when all three
    /// follow one leader and have their streams up to date, by their own word.
    ///
    /// # Errors
    /// If a node does not start, or they do not come together in time.
    pub fn start(&self) -> Result<(), ServerError> {
        thread::scope(|scope| {
            let starts: Vec<_> = self
                .nodes()
                // Alone it is not healthy: that it listens is enough for now.
                .map(|node| scope.spawn(|| node.start_until(|n| n.page("/varz").map(|_| true))))
                .collect();
            starts.into_iter().try_for_each(|start| match start.join() {
                Ok(Err(ServerError::Running)) => Ok(()),
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        // One that cannot tell yet does not follow.
        until("follow one leader", LIMIT, || {
            Ok(self.is_one().unwrap_or(false))
        })
    }

    /// One node, by its number.
    ///
    /// # Panics
    /// If there is no such node.
    #[must_use]
    pub fn node(&self, number: usize) -> &NatsServer {
        &self.nodes[number]
    }

    /// All nodes, by their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = &NatsServer> {
        self.nodes.iter()
    }

    /// The number of the node that leads JetStream, by the word of one that runs.
    ///
    /// # Errors
    /// If there is none for a minute and a half.
    pub fn meta_leader(&self) -> Result<usize, ServerError> {
        let mut leader = None;
        until("have a leader", ELECTED, || {
            leader = self.meta_leader_now().ok();
            Ok(leader.is_some())
        })?;
        leader.ok_or(ServerError::NotRunning)
    }

    /// Waits until another node than this one leads JetStream.
    ///
    /// # Errors
    /// If none does within a minute and a half.
    pub fn until_led_without(&self, number: usize) -> Result<(), ServerError> {
        until("have another leader", ELECTED, || {
            Ok(self.meta_leader_now().is_ok_and(|leader| leader != number))
        })
    }

    /// The number of the node that leads a stream, by its own word.
    ///
    /// # Errors
    /// If none does for a minute and a half.
    pub fn stream_leader(&self, stream: &str) -> Result<usize, ServerError> {
        let mut leader = None;
        until("lead the stream", ELECTED, || {
            leader = self.nodes().find_map(|node| {
                let subject = format!("$JS.API.STREAM.INFO.{stream}");
                let info: Value = serde_json::from_str(&node.request(&subject, "").ok()?).ok()?;
                number(info.pointer("/cluster/leader"))
            });
            Ok(leader.is_some())
        })?;
        leader.ok_or(ServerError::NotRunning)
    }

    /// How to connect: by all nodes.
    #[must_use]
    pub fn url(&self) -> NatsUrl {
        NatsUrl {
            tls: false,
            login: None,
            addresses: self.nodes().map(NatsServer::address).collect(),
        }
    }

    fn until_there_is_room(&self) -> Result<(), ServerError> {
        // The leader hears of each node's room later than of the node.
        until("make a stream of three replicas", LIMIT, || {
            let probe = r#"{"name":"kit-probe","subjects":["kit-probe"],"num_replicas":3}"#;
            let made = self.nodes[0].request("$JS.API.STREAM.CREATE.kit-probe", probe);
            Ok(made.is_ok())
        })?;
        let removed = self.nodes[0].request("$JS.API.STREAM.DELETE.kit-probe", "");
        removed.map(drop)
    }

    /// Whether all follow one leader, which has all of them.
    fn is_one(&self) -> Result<bool, ServerError> {
        let leader = self.meta_leader_now()?;
        for node in self.nodes() {
            let same = number(node.meta()?.pointer("/leader")) == Some(leader);
            if !same || !node.is_healthy()? {
                return Ok(false);
            }
        }
        Ok(has_all(&self.nodes[leader].meta()?))
    }

    fn meta_leader_now(&self) -> Result<usize, ServerError> {
        self.nodes()
            .filter(|node| node.state().answers().is_ok())
            .find_map(|node| number(node.meta().ok()?.pointer("/leader")))
            .ok_or_else(|| ServerError::Command {
                command: "GET /jsz".into(),
                source: "no node knows of a leader".into(),
            })
    }
}

impl NatsServer {
    fn meta(&self) -> Result<Value, ServerError> {
        let page = self.page("/jsz")?;
        Ok(page.pointer("/meta_cluster").cloned().unwrap_or_default())
    }
}

fn name(number: usize) -> String {
    format!("node-{number}")
}

fn number(leader: Option<&Value>) -> Option<usize> {
    (0..NODES).find(|n| leader == Some(&Value::from(name(*n))))
}

/// Whether the leader has all the others, up to date.
fn has_all(meta: &Value) -> bool {
    let others = meta.pointer("/replicas").and_then(Value::as_array);
    let current = |node: &&Value| node.pointer("/current") == Some(&Value::Bool(true));
    others.is_some_and(|others| others.iter().filter(current).count() == NODES - 1)
}
