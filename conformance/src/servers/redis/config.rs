//! How a test wants its Redis.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{RedisServer, ServerError};
use crate::servers::tls::TlsFiles;

/// What is on disk when the server is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// Nothing: every end of the server loses all data.
    #[default]
    None,
    /// A snapshot at a clean stop and at [`RedisServer::save`], and never in
    /// between: a kill loses what was written since.
    Rdb,
    /// A log that reaches the disk every second. A kill of the *server* loses
    /// nothing that the system has already; a kill of the *machine* would, and
    /// [`RedisServer::backup`] can stand for that. While a flush of the disk is
    /// under way the server keeps up to two seconds to itself: wait until `INFO`
    /// tells an `aof_buffer_length` of 0 before a kill that must lose nothing.
    AofEverysec,
    /// A log that reaches the disk before each answer.
    AofAlways,
}

impl Persistence {
    fn lines(self) -> &'static [&'static str] {
        match self {
            Self::None => &["save \"\"", "appendonly no"],
            // A save point makes a clean stop save; this one is too far off to
            // save by itself during a test.
            Self::Rdb => &["save 86400 1", "appendonly no"],
            Self::AofEverysec => &["save \"\"", "appendonly yes", "appendfsync everysec"],
            Self::AofAlways => &["save \"\"", "appendonly yes", "appendfsync always"],
        }
    }
}

/// The user by which the kit itself connects; it may do everything.
pub(super) const ADMIN: &str = "lease-conformance";

/// What a replica must know of its primary.
#[derive(Clone, Debug)]
struct Primary {
    address: SocketAddr,
    password: String,
    authority: Option<PathBuf>,
}

/// Settings of a [`RedisServer`].
///
/// Without any it is a server without persistence, passwords and TLS.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RedisBuilder {
    pub(super) persistence: Persistence,
    pub(super) tls: bool,
    pub(super) default_user: DefaultUser,
    users: Vec<String>,
    lines: Vec<String>,
    primary: Option<Primary>,
    pub(super) member: Option<Member>,
    #[cfg(feature = "containers")]
    pub(super) image: Option<crate::servers::container::Image>,
}

/// What the servers of one deployment share, whichever of them is the primary.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) admin_password: String,
    pub(super) tls: TlsFiles,
    /// The settings of a sentinel; `None` for a server that keeps data.
    pub(super) sentinel: Option<Vec<String>>,
}

/// What may be done without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum DefaultUser {
    #[default]
    Open,
    Password(String),
    Off,
}

impl RedisBuilder {
    /// What survives the end of the server; nothing by default.
    pub fn persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
        self
    }

    /// TLS on the server's only port, with a certificate for `localhost` and
    /// `127.0.0.1` by an authority of its own ([`RedisServer::authority_pem`]).
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// A password for clients that name no user.
    pub fn password(mut self, password: &str) -> Self {
        self.default_user = DefaultUser::Password(password.to_owned());
        self
    }

    /// Nobody may do anything without a user's name.
    pub fn default_user_off(mut self) -> Self {
        self.default_user = DefaultUser::Off;
        self
    }

    /// One more user, as an ACL line: `app on >secret ~leases:* +@all`.
    pub fn user(mut self, acl: &str) -> Self {
        self.users.push(acl.to_owned());
        self
    }

    /// The most memory, such as `2mb`, and what to do at its end, such as
    /// `noeviction` or `allkeys-lru`.
    pub fn max_memory(self, most: &str, policy: &str) -> Self {
        self.config(&format!("maxmemory {most}"))
            .config(&format!("maxmemory-policy {policy}"))
    }

    /// Takes writes only while so many replicas were heard of in the last `lag`
    /// (whole seconds).
    pub fn min_replicas(self, count: usize, lag: Duration) -> Self {
        self.config(&format!("min-replicas-to-write {count}"))
            .config(&format!("min-replicas-max-lag {}", lag.as_secs().max(1)))
    }

    /// One more line of `redis.conf`; it overrides what the kit itself sets.
    pub fn config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Lines of the kit's own, in front of the test's.
    pub(super) fn config_first(mut self, lines: &[String]) -> Self {
        self.lines.splice(0..0, lines.iter().cloned());
        self
    }

    /// A replica of this server; see [`RedisServer::wait_until_linked`].
    pub fn replica_of(self, primary: &RedisServer) -> Self {
        let address = primary.address();
        self.replica_through(primary, address)
    }

    /// A replica of `primary` by way of another address that leads to it, such
    /// as a proxy's.
    pub fn replica_through(mut self, primary: &RedisServer, address: SocketAddr) -> Self {
        self.primary = Some(Primary {
            address,
            password: primary.admin_password().to_owned(),
            authority: primary.authority_pem().map(Path::to_owned),
        });
        self
    }

    /// Runs the server from this image, such as `redis` and `7.4`, instead of
    /// this machine's own; see [`container`](crate::servers::container).
    #[cfg(feature = "containers")]
    pub fn in_container(mut self, image: &str, tag: &str) -> Self {
        self.image = Some(crate::servers::container::Image {
            name: image.to_owned(),
            tag: tag.to_owned(),
        });
        self
    }

    /// Starts the server; returns when it answers.
    ///
    /// # Errors
    /// A program that is missing, or a server that does not start: with its log.
    pub fn start(self) -> Result<RedisServer, ServerError> {
        RedisServer::launch(self)
    }

    /// Whether the server writes its configuration itself.
    pub(super) fn writes_its_config(&self) -> bool {
        self.member.is_some()
    }

    /// The settings of a sentinel, if it is one.
    pub(super) fn sentinel(&self) -> Option<&[String]> {
        self.member.as_ref()?.sentinel.as_deref()
    }

    /// The text of `redis.conf`.
    pub(super) fn text(&self, place: &Layout, port: u16, admin_password: &str) -> String {
        let (plain, tls) = if self.tls { (0, port) } else { (port, 0) };
        let mut lines = vec![
            format!("bind {}", Ipv4Addr::LOCALHOST),
            format!("port {plain}"),
            format!("dir {}", quoted(&place.data)),
            format!("logfile {}", quoted(&place.log)),
            format!("unixsocket {}", quoted(&place.socket)),
            "unixsocketperm 700".into(),
            "daemonize no".into(),
            format!("user {ADMIN} on >{admin_password} ~* &* +@all"),
        ];
        match self.sentinel() {
            Some(settings) => lines.extend_from_slice(settings),
            None => {
                // Tests may ask for what makes rare things frequent.
                lines.push("enable-debug-command local".into());
                // A replica is linked at once, not after five seconds.
                lines.push("repl-diskless-sync-delay 0".into());
                lines.extend(self.persistence.lines().iter().map(|line| (*line).into()));
            }
        }
        match &self.default_user {
            DefaultUser::Open => {}
            DefaultUser::Password(password) => {
                lines.push(format!("user default on >{password} ~* &* +@all"));
            }
            // Its rights stay. Redis loads its log by them, whoever wrote it, and
            // would silently skip each transaction and each script with more
            // than one write (redis#14541).
            DefaultUser::Off => lines.push("user default off ~* &* +@all".into()),
        }
        lines.extend(self.users.iter().map(|acl| format!("user {acl}")));
        if self.tls {
            lines.push(format!("tls-port {tls}"));
            lines.push(format!("tls-cert-file {}", quoted(&place.tls.certificate)));
            lines.push(format!("tls-key-file {}", quoted(&place.tls.key)));
            lines.push("tls-auth-clients no".into());
        }
        if self.member.is_some() && self.sentinel().is_none() {
            // Any of them may come to follow another.
            lines.push(format!("masteruser {ADMIN}"));
            lines.push(format!("masterauth {admin_password}"));
        }
        if self.member.is_some() && self.tls {
            lines.push("tls-replication yes".into());
        }
        if let Some(primary) = &self.primary {
            let (host, port) = (primary.address.ip(), primary.address.port());
            lines.push(format!("replicaof {host} {port}"));
            lines.push(format!("masteruser {ADMIN}"));
            lines.push(format!("masterauth {}", primary.password));
            if primary.authority.is_some() {
                lines.push("tls-replication yes".into());
            }
        }
        // Whom to trust as a client: the primary's authority, if it has one.
        let primary = self.primary.as_ref();
        let trusted = primary.and_then(|primary| primary.authority.as_ref());
        let own = self.tls.then_some(&place.tls.authority);
        if let Some(authority) = trusted.or(own) {
            lines.push(format!("tls-ca-cert-file {}", quoted(authority)));
        }
        lines.extend(self.lines.iter().cloned());
        lines.join("\n") + "\n"
    }
}

/// The files of one server.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) config: PathBuf,
    pub(super) data: PathBuf,
    pub(super) log: PathBuf,
    /// What it says before it has a log.
    pub(super) output: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) tls: TlsFiles,
}

fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
