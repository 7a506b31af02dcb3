//! How a test wants its pooler.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::PgBouncer;
use crate::servers::ServerError;
use crate::servers::postgres::{ADMIN, PostgresUrl};
use crate::servers::tls::TlsFiles;

/// For how long a client keeps a connection of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PoolMode {
    /// Until it leaves.
    Session,
    /// Until the end of each transaction: what is in a session is lost between
    /// two of them, or is somebody else's.
    #[default]
    Transaction,
    /// Until the end of each statement: there are no transactions.
    Statement,
}

impl PoolMode {
    fn word(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
            Self::Statement => "statement",
        }
    }
}

/// Settings of a [`PgBouncer`].
///
/// Without any it pools by transaction, and has no TLS before it.
#[derive(Clone, Debug)]
#[must_use]
pub struct PgBouncerBuilder {
    pub(super) server: SocketAddr,
    pub(super) authority: Option<PathBuf>,
    pub(super) owner: PostgresUrl,
    pub(super) admin: PostgresUrl,
    pub(super) users: Vec<(String, Secret)>,
    pub(super) mode: PoolMode,
    pub(super) tls: bool,
    pub(super) settings: Vec<(String, String)>,
}

/// A password, which nothing prints.
#[derive(Clone)]
pub(super) struct Secret(pub(super) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl PgBouncerBuilder {
    /// For how long a client keeps a connection; defaults to a transaction.
    pub fn pool_mode(mut self, mode: PoolMode) -> Self {
        self.mode = mode;
        self
    }

    /// The most connections to the server for each user and database.
    pub fn pool_size(self, most: u32) -> Self {
        self.config("default_pool_size", &most.to_string())
    }

    /// Reaches the server by another address that leads to it, such as a
    /// proxy's.
    pub fn through(mut self, address: SocketAddr) -> Self {
        self.server = address;
        self
    }

    /// TLS on its port and nothing else there, with a certificate as of
    /// [`PostgresBuilder::tls`](crate::servers::postgres::PostgresBuilder::tls);
    /// [`PgBouncer::url`] trusts it.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// One more setting of `pgbouncer.ini`; it overrides what the kit itself
    /// sets.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts the pooler; returns when it listens. The server need not run.
    ///
    /// # Errors
    /// A program that is missing, or a pooler that does not start: with its log.
    pub fn start(self) -> Result<PgBouncer, ServerError> {
        PgBouncer::launch(self)
    }

    pub(super) fn text(&self, folder: &Path, port: u16, tls: &TlsFiles) -> String {
        let (host, server) = (self.server.ip(), self.server.port());
        let path = |path: &Path| path.display().to_string();
        let mut lines = vec![
            "[databases]".to_owned(),
            format!("* = host={host} port={server}"),
            "[pgbouncer]".to_owned(),
        ];
        let mut set = |name: &str, value: String| lines.push(format!("{name} = {value}"));
        set("listen_addr", Ipv4Addr::LOCALHOST.to_string());
        set("listen_port", port.to_string());
        set("unix_socket_dir", path(folder));
        set("auth_type", "scram-sha-256".into());
        set("auth_file", path(&folder.join(USERS)));
        set("admin_users", ADMIN.into());
        set("pool_mode", self.mode.word().into());
        // The drivers for Rust send it, and every guide says so.
        set("ignore_startup_parameters", "extra_float_digits".into());
        // A server that was down is back at once, not after 15 seconds.
        set("server_login_retry", "1".into());
        // Of a server that does not answer: its usual 15 s are half of what a test waits.
        set("server_connect_timeout", "3".into());
        if let Some(authority) = &self.authority {
            set("server_tls_sslmode", "verify-full".into());
            set("server_tls_ca_file", path(authority));
        }
        if self.tls {
            set("client_tls_sslmode", "require".into());
            set("client_tls_cert_file", path(&tls.certificate));
            set("client_tls_key_file", path(&tls.key));
        }
        for (name, value) in &self.settings {
            set(name, value.clone());
        }
        lines.join("\n") + "\n"
    }

    pub(super) fn user_list(&self) -> String {
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        let line =
            |(name, secret): &(String, Secret)| format!("{} {}\n", quoted(name), quoted(&secret.0));
        self.users.iter().map(line).collect()
    }
}

pub(super) const USERS: &str = "userlist.txt";
