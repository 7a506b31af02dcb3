//! How a test wants its sentinels and what they watch.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::config::{DefaultUser, Member};
use super::super::{ADMIN, RedisBuilder, RedisServer, claim, password};
use super::{DataNode, NAME, SENTINELS, SentinelTrio, WATCHER, follow};
use crate::proxy::FaultProxy;
use crate::servers::ServerError;
use crate::servers::tls::TlsFiles;

/// Settings of a [`SentinelTrio`].
#[derive(Clone, Debug)]
#[must_use]
pub struct SentinelBuilder {
    nodes: RedisBuilder,
    replicas: usize,
    down_after: Duration,
    failover_timeout: Duration,
    directly: bool,
    users: Vec<String>,
    lines: Vec<String>,
}

/// Two replicas, and a primary that is missed after a second.
impl Default for SentinelBuilder {
    fn default() -> Self {
        Self {
            nodes: RedisBuilder::default(),
            replicas: 2,
            down_after: Duration::from_secs(1),
            failover_timeout: Duration::from_secs(4),
            directly: false,
            users: Vec::new(),
            lines: Vec::new(),
        }
    }
}

impl SentinelBuilder {
    /// Every server with data is as this one says: its persistence, its users,
    /// TLS (which the sentinels then have, too, by the same authority). Nobody
    /// may come to it without a name in any case.
    pub fn nodes(mut self, nodes: RedisBuilder) -> Self {
        self.nodes = nodes;
        self
    }

    /// How many replicas there are.
    pub fn replicas(mut self, count: usize) -> Self {
        self.replicas = count;
        self
    }

    /// After how long without an answer a sentinel takes a server for gone.
    pub fn down_after(mut self, time: Duration) -> Self {
        self.down_after = time;
        self
    }

    /// Until the first failover, replicas follow the primary by its own address,
    /// so that its door has clients and sentinels alone: see
    /// [`SentinelTrio::quiet`].
    pub fn replicate_directly(mut self) -> Self {
        self.directly = true;
        self
    }

    /// One more user of the sentinels, as an ACL line; nobody may come to them
    /// without a name then.
    pub fn sentinel_user(mut self, acl: &str) -> Self {
        self.users.push(acl.to_owned());
        self
    }

    /// One more line of every sentinel's configuration.
    pub fn sentinel_config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Starts them all; returns when every sentinel knows every server and every
    /// other sentinel, and replicas follow.
    ///
    /// # Errors
    /// As of [`RedisBuilder::start`], or if they do not find together within
    /// half a minute.
    pub fn start(self) -> Result<SentinelTrio, ServerError> {
        let folder = tempfile::Builder::new()
            .prefix("redis-sentinel-")
            .tempdir()
            .map_err(|e| ServerError::io("make a folder for certificates", e))?;
        let tls = TlsFiles::in_folder(folder.path());
        if self.nodes.tls {
            tls.create()?;
        }
        let member = Member {
            admin_password: password()?,
            tls,
            sentinel: None,
        };
        let watcher = password()?;
        let nodes = (0..=self.replicas)
            .map(|_| self.node(&member, &watcher))
            .collect::<Result<Vec<_>, _>>()?;
        let primary = nodes[0].address();
        let follows = match self.directly {
            true => nodes[0].server.address(),
            false => primary,
        };
        for replica in &nodes[1..] {
            follow(&replica.server, follows)?;
        }
        let mut trio = SentinelTrio {
            sentinels: Vec::new(),
            nodes,
            nowhere: claim()?,
            _folder: folder,
            settings: self,
        };
        for _ in 0..SENTINELS {
            let sentinel = trio.settings.sentinel(&member, &watcher, primary)?;
            trio.sentinels.push(sentinel);
        }
        trio.settle()?;
        Ok(trio)
    }

    pub(super) fn failover_timeout(&self) -> Duration {
        self.failover_timeout
    }

    pub(super) fn replica_count(&self) -> usize {
        self.replicas
    }

    fn node(&self, member: &Member, watcher: &str) -> Result<DataNode, ServerError> {
        // Who is not let in as a sentinel must not come in as somebody else.
        let mut builder = self.nodes.clone().default_user_off();
        builder.member = Some(member.clone());
        // As the manual of Sentinel lists them.
        let server = builder
            .user(&format!(
                "{WATCHER} on >{watcher} resetchannels &* -@all +multi +slaveof +ping +exec \
                 +subscribe +config|rewrite +role +publish +info +client|setname +client|kill \
                 +script|kill"
            ))
            .start()?;
        let door = FaultProxy::start(server.address())
            .map_err(|e| ServerError::io("start a proxy before the server", e))?;
        let node = DataNode { door, server };
        let address = node.address();
        let set = |name: &str, value: String| node.server.config_set(name, &value);
        set("replica-announce-ip", address.ip().to_string())?;
        set("replica-announce-port", address.port().to_string())?;
        node.server.command(&["CONFIG", "REWRITE"])?;
        Ok(node)
    }

    fn sentinel(
        &self,
        member: &Member,
        watcher: &str,
        primary: SocketAddr,
    ) -> Result<RedisServer, ServerError> {
        let (host, port) = (primary.ip(), primary.port());
        let quorum = SENTINELS / 2 + 1;
        let mut settings = vec![
            format!("sentinel monitor {NAME} {host} {port} {quorum}"),
            format!("sentinel auth-user {NAME} {WATCHER}"),
            format!("sentinel auth-pass {NAME} {watcher}"),
            format!(
                "sentinel down-after-milliseconds {NAME} {}",
                self.down_after.as_millis()
            ),
            format!(
                "sentinel failover-timeout {NAME} {}",
                self.failover_timeout.as_millis()
            ),
            format!("sentinel parallel-syncs {NAME} {}", self.replicas.max(1)),
            // Of one another.
            format!("sentinel sentinel-user {ADMIN}"),
            format!("sentinel sentinel-pass {}", member.admin_password),
        ];
        settings.extend_from_slice(&self.lines);
        let mut builder = RedisBuilder::default();
        if self.nodes.tls {
            builder = builder.tls();
        }
        if !self.users.is_empty() {
            builder.default_user = DefaultUser::Off;
        }
        for acl in &self.users {
            builder = builder.user(acl);
        }
        builder.member = Some(Member {
            sentinel: Some(settings),
            ..member.clone()
        });
        let sentinel = builder.start()?;
        hurry(&sentinel)?;
        Ok(sentinel)
    }
}

/// From now on it does neither.
pub(super) fn quiet(sentinel: &RedisServer) -> Result<(), ServerError> {
    let mut never = vec!["SENTINEL", "DEBUG"];
    for what in ["INFO-PERIOD", "PING-PERIOD", "PUBLISH-PERIOD"] {
        never.extend([what, "3600000"]);
    }
    sentinel.command(&never).map(drop)
}

/// Sentinels look and talk every few seconds; tests have less time. The period of
/// their pings stays: by its multiples they judge whether a replica is fresh.
///
/// # Errors
/// Of versions before 7.0, which only know their own pace.
pub(super) fn hurry(sentinel: &RedisServer) -> Result<(), ServerError> {
    let pace = [
        "SENTINEL",
        "DEBUG",
        "INFO-PERIOD",
        "200",
        "ASK-PERIOD",
        "200",
        "PUBLISH-PERIOD",
        "200",
        // After a pause of its own, as on a busy machine, it would do nothing for
        // half a minute.
        "TILT-PERIOD",
        "1000",
    ];
    sentinel.command(&pace).map(drop)
}
