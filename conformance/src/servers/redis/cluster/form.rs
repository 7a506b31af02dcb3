//! How the nodes come together.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::thread;

use tempfile::TempDir;

use super::super::{PORTS, claim, password, port_is_taken};
use super::view::serves;
use super::{
    ClusterBuilder, NODES, Node, PRIMARIES, REPLICATION, RedisCluster, RedisServer, SLOTS,
    ServerError,
};
use crate::proxy::FaultProxy;
use crate::servers::tls::TlsFiles;

/// Where a node keeps its picture of the cluster, in its data folder.
pub(super) const PICTURE: &str = "nodes.conf";

pub(super) fn form(settings: ClusterBuilder) -> Result<RedisCluster, ServerError> {
    for _ in 1..PORTS {
        match try_to_form(&settings) {
            Err(error) if port_is_taken(&error) => {}
            other => return other,
        }
    }
    try_to_form(&settings)
}

fn try_to_form(settings: &ClusterBuilder) -> Result<RedisCluster, ServerError> {
    let password = password()?;
    let tls = settings.tls.then(certificates).transpose()?;
    let files = tls.as_ref().map(|(files, _)| files);
    let mut nodes = Vec::with_capacity(NODES);
    for _ in 0..NODES {
        nodes.push(prepared(settings, &password, files)?);
    }
    for number in 0..NODES {
        nodes[number].draw(&picture(&nodes, number))?;
    }
    let cluster = RedisCluster {
        nodes,
        password,
        turn: Default::default(),
        tls,
    };
    cluster.start_all()?;
    for number in 0..PRIMARIES {
        let replica = cluster.node(number);
        // A primary that does not serve yet would wait before it does.
        cluster.until("serve", || serves(replica))?;
        replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"])?;
    }
    cluster.until_settled()?;
    Ok(cluster)
}

fn certificates() -> Result<(TlsFiles, TempDir), ServerError> {
    let folder = tempfile::Builder::new()
        .prefix("redis-cluster-")
        .tempdir()
        .map_err(|e| ServerError::io("make a folder for certificates", e))?;
    let files = TlsFiles::in_folder(folder.path());
    files.create()?;
    Ok((files, folder))
}

/// A node that was not started yet.
fn prepared(
    settings: &ClusterBuilder,
    password: &str,
    tls: Option<&TlsFiles>,
) -> Result<Node, ServerError> {
    let (port, bus) = (claim()?, claim()?);
    let own = ([127, 0, 0, 1], port.port());
    let proxy = settings
        .proxied
        .then(|| FaultProxy::start(std::net::SocketAddr::from(own)).map(Arc::new))
        .transpose()
        .map_err(|e| ServerError::io("start a proxy in front of a node", e))?;
    let mut node = settings
        .node
        .clone()
        .user(&format!("{REPLICATION} on >{password} ~* &* +@all"));
    let mut lines = vec![
        "cluster-enabled yes".to_owned(),
        format!("cluster-config-file {PICTURE}"),
        format!("cluster-node-timeout {}", settings.node_timeout.as_millis()),
        format!("cluster-port {}", bus.port()),
        // A replica that never fell behind may take over, however long it was
        // out of touch: what is lost is the test's to choose.
        "cluster-replica-validity-factor 0".to_owned(),
        // A replica is named in CLUSTER SLOTS when it has heard something.
        "repl-ping-replica-period 1".to_owned(),
        format!("masteruser {REPLICATION}"),
        format!("masterauth {password}"),
    ];
    if let Some(proxy) = &proxy {
        lines.push("cluster-announce-ip 127.0.0.1".to_owned());
        // A program without TLS does not know the other one.
        let kind = if tls.is_some() { "tls-" } else { "" };
        let port = proxy.address().port();
        lines.push(format!("cluster-announce-{kind}port {port}"));
        lines.push(format!("cluster-announce-bus-port {}", bus.port()));
    }
    if let Some(files) = tls {
        lines.push("port 0".to_owned());
        lines.push(format!("tls-port {}", port.port()));
        lines.push(format!("tls-ca-cert-file {}", files.authority.display()));
        lines.push(format!("tls-cert-file {}", files.certificate.display()));
        lines.push(format!("tls-key-file {}", files.key.display()));
        lines.push("tls-auth-clients no".to_owned());
        lines.push("tls-replication yes".to_owned());
        lines.push("tls-cluster yes".to_owned());
    }
    // In front of the test's own, which override them.
    node = node.config_first(&lines);
    Ok(Node {
        id: id()?,
        server: RedisServer::prepare(node, port)?,
        proxy,
        _bus: bus,
    })
}

fn id() -> Result<String, ServerError> {
    Ok(format!(
        "{}{}{}",
        password()?,
        password()?,
        &password()?[..8]
    ))
}

impl Node {
    /// Writes its picture of the cluster down.
    fn draw(&self, picture: &str) -> Result<(), ServerError> {
        fs::write(self.server.place.data.join(PICTURE), picture)
            .map_err(|e| ServerError::io("write down how the cluster looks", e))
    }
}

/// The cluster as the node of this number sees it at its start: the last three
/// are the primaries of the first three.
fn picture(nodes: &[Node], number: usize) -> String {
    let mut text = String::new();
    for (place, node) in nodes.iter().enumerate() {
        let own = if place == number { "myself," } else { "" };
        let (address, bus) = (node.address(), node._bus.port());
        let part = place % PRIMARIES;
        let epoch = part + 1;
        let _ = match place >= PRIMARIES {
            true => {
                let (first, last) = slots(part);
                writeln!(
                    text,
                    "{} {address}@{bus} {own}master - 0 0 {epoch} connected {first}-{last}",
                    node.id
                )
            }
            false => {
                let primary = &nodes[place + PRIMARIES].id;
                writeln!(
                    text,
                    "{} {address}@{bus} {own}slave {primary} 0 0 {epoch} connected",
                    node.id
                )
            }
        };
    }
    let _ = writeln!(text, "vars currentEpoch {PRIMARIES} lastVoteEpoch 0");
    text
}

/// The first and the last slot of a part of the cluster.
fn slots(part: usize) -> (u16, u16) {
    let start = |part: usize| part as u16 * (SLOTS / PRIMARIES as u16);
    let end = match part + 1 {
        PRIMARIES => SLOTS,
        next => start(next),
    };
    (start(part), end - 1)
}

impl RedisCluster {
    /// Starts all nodes that do not run, side by side.
    pub(super) fn start_all(&self) -> Result<(), ServerError> {
        thread::scope(|scope| {
            let starts: Vec<_> = self
                .nodes()
                .map(|node| scope.spawn(|| node.start()))
                .collect();
            starts.into_iter().try_for_each(|start| match start.join() {
                Ok(Err(ServerError::Running)) => Ok(()),
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    /// Kills all nodes and starts them with the data that they saved.
    ///
    /// Primaries that start wait for two seconds before they serve.
    ///
    /// # Errors
    /// If one does not come back.
    pub fn restart(&self) -> Result<(), ServerError> {
        self.nodes().try_for_each(RedisServer::end)?;
        self.start_all()?;
        self.until_settled()
    }

    /// Kills all nodes and starts them without any data; who is whose replica,
    /// and which slots are whose, they remember.
    ///
    /// # Errors
    /// If one does not come back.
    pub fn restart_empty(&self) -> Result<(), ServerError> {
        self.nodes().try_for_each(RedisServer::end)?;
        (0..NODES).try_for_each(|number| self.forget(number))?;
        self.start_all()?;
        self.until_settled()
    }

    /// Kills one node, if it runs, and starts it without any data. What part it
    /// has in the cluster it remembers.
    ///
    /// # Errors
    /// If it does not come back.
    pub fn restart_node_empty(&self, number: usize) -> Result<(), ServerError> {
        self.node(number).end()?;
        self.forget(number)?;
        self.node(number).start()
    }

    fn forget(&self, number: usize) -> Result<(), ServerError> {
        let data = &self.node(number).place.data;
        let picture = fs::read_to_string(data.join(PICTURE))
            .map_err(|e| ServerError::io("read how the cluster looks", e))?;
        super::super::remake(data)?;
        self.nodes[number].draw(&picture)
    }
}
