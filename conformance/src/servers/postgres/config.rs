//! How a test wants its Postgres.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use super::url::PostgresUrl;
use super::{ADMIN, PostgresServer, ServerError};
use crate::servers::tls::TlsFiles;

/// What a standby must know of its primary.
#[derive(Clone, Debug)]
pub(super) struct Primary {
    /// Where the changes come from: maybe a proxy.
    pub(super) address: SocketAddr,
    /// Where the kit asks.
    pub(super) socket: PostgresUrl,
    pub(super) passwords: Passwords,
    authority: Option<PathBuf>,
}

/// Those of the roles that every server has.
#[derive(Clone)]
pub(super) struct Passwords {
    pub(super) admin: String,
    pub(super) owner: String,
}

/// A role that may log in.
#[derive(Clone)]
pub(super) struct Role {
    pub(super) name: String,
    pub(super) password: String,
    pub(super) attributes: String,
}

/// Settings of a [`PostgresServer`].
///
/// Without any it is a primary with the settings of Postgres itself, without
/// TLS, and as durable as in production.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PostgresBuilder {
    pub(super) no_fsync: bool,
    pub(super) tls: bool,
    pub(super) roles: Vec<Role>,
    pub(super) primary: Option<Primary>,
    pub(super) name: Option<String>,
    settings: Vec<(String, String)>,
    rules: Vec<String>,
}

impl PostgresBuilder {
    /// Whether a commit waits for the disk (`fsync`); defaults to `true`.
    ///
    /// Without it starts, commits and recoveries are fast, and the data are in
    /// memory if `/dev/shm` has room for them (1 GiB). What was committed
    /// survives every end of the *server* all the same, since the system has it;
    /// it would not survive the end of the *machine*, which no test brings about.
    /// So switch it off where neither the time of a commit nor the setting itself
    /// matters.
    pub fn fsync(mut self, on: bool) -> Self {
        self.no_fsync = !on;
        self
    }

    /// TLS on the server's port and nothing else there, with a certificate for
    /// `localhost` and `127.0.0.1` by an authority of its own
    /// ([`PostgresServer::authority_pem`]).
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// One more role that may log in with this password, with more attributes as
    /// `CREATE ROLE` takes them: `CONNECTION LIMIT 5`, or none. It owns nothing.
    pub fn role(mut self, name: &str, password: &str, attributes: &str) -> Self {
        self.roles.push(Role {
            name: name.to_owned(),
            password: password.to_owned(),
            attributes: attributes.to_owned(),
        });
        self
    }

    /// One line of `pg_hba.conf` that goes before the kit's own, such as
    /// `host all app 127.0.0.1/32 reject`.
    pub fn hba(mut self, line: &str) -> Self {
        self.rules.push(line.to_owned());
        self
    }

    /// One setting of `postgresql.conf`, such as `max_connections` and `20`; it
    /// overrides what the kit itself sets.
    pub fn config(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A standby of this server, with its settings, which follows it
    /// asynchronously; see [`PostgresServer::set_synchronous`].
    pub fn standby_of(self, primary: &PostgresServer) -> Self {
        let address = primary.address();
        self.standby_through(primary, address)
    }

    /// A standby that hears of the changes of `primary` by way of another
    /// address, such as a proxy's: what the proxy holds back has not arrived.
    pub fn standby_through(mut self, primary: &PostgresServer, address: SocketAddr) -> Self {
        // A standby may not have less than its primary of some things.
        let inherited = primary.settings.settings.iter().cloned();
        self.settings.splice(0..0, inherited);
        self.roles.clone_from(&primary.settings.roles);
        self.primary = Some(Primary {
            address,
            socket: primary.admin_url(),
            passwords: primary.passwords.clone(),
            authority: primary.authority_pem().map(Path::to_owned),
        });
        self
    }

    /// Of a standby: its name at its primary (`application_name`). Defaults to
    /// one that no other has.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Starts the server; returns when it answers.
    ///
    /// # Errors
    /// A program that is missing, or a server that does not start: with its log.
    pub fn start(self) -> Result<PostgresServer, ServerError> {
        PostgresServer::launch(self)
    }

    /// The text of `postgresql.conf`; `changed` was set while it ran.
    pub(super) fn text(
        &self,
        place: &Layout,
        port: u16,
        name: &str,
        changed: &[(String, String)],
    ) -> String {
        let path = |path: &Path| path.display().to_string();
        let mut settings: Vec<(&str, String)> = vec![
            ("listen_addresses", Ipv4Addr::LOCALHOST.to_string()),
            ("port", port.to_string()),
            ("unix_socket_directories", path(&place.folder)),
            ("hba_file", path(&place.rules)),
            // Many servers on one machine, and no files outside the folder.
            ("shared_buffers", "16MB".into()),
            ("huge_pages", "off".into()),
            ("dynamic_shared_memory_type", "mmap".into()),
            ("min_wal_size", "32MB".into()),
            ("timezone", "UTC".into()),
            ("log_timezone", "UTC".into()),
            ("log_destination", "stderr".into()),
            ("logging_collector", "off".into()),
            ("log_line_prefix", "%m [%p] %q%u ".into()),
            ("password_encryption", "scram-sha-256".into()),
            // What a standby that was away for a while still needs.
            ("wal_keep_size", "64MB".into()),
            // Promptly, also after a proxy that refused.
            ("wal_retrieve_retry_interval", "100ms".into()),
        ];
        if self.no_fsync {
            settings.push(("fsync", "off".into()));
            // Of the memory that the data are in.
            settings.push(("max_wal_size", "128MB".into()));
        }
        if self.tls {
            settings.push(("ssl", "on".into()));
            settings.push(("ssl_cert_file", path(&place.tls.certificate)));
            settings.push(("ssl_key_file", path(&place.tls.key)));
        }
        if let Some(primary) = &self.primary {
            settings.push(("primary_conninfo", primary.connection(name)));
        }
        let own = self.settings.iter().chain(changed);
        settings.extend(own.map(|(name, value)| (name.as_str(), value.clone())));
        // Of two lines with one name, the last counts.
        let line = |(name, value): &(&str, String)| format!("{name} = {}\n", quoted(value));
        settings.iter().map(line).collect()
    }

    /// The text of `pg_hba.conf`.
    pub(super) fn rules(&self) -> String {
        let host = if self.tls { "hostssl" } else { "host" };
        let here = format!("{}/32", Ipv4Addr::LOCALHOST);
        let mut lines = vec![
            // Who may enter the folder may do everything anyway.
            format!("local all {ADMIN} trust"),
            format!("local replication {ADMIN} trust"),
        ];
        lines.extend(self.rules.iter().cloned());
        lines.push("local all all scram-sha-256".into());
        lines.push(format!("{host} replication {ADMIN} {here} scram-sha-256"));
        lines.push(format!("{host} all all {here} scram-sha-256"));
        lines.join("\n") + "\n"
    }
}

impl Primary {
    /// The setting by which a standby finds it.
    fn connection(&self, name: &str) -> String {
        let (host, port) = (self.address.ip(), self.address.port());
        let mut text = format!(
            "host={host} port={port} user={ADMIN} password={} application_name={}",
            quoted(&self.passwords.admin),
            quoted(name)
        );
        match &self.authority {
            Some(authority) => {
                let authority = quoted(&authority.display().to_string());
                text += &format!(" sslmode=verify-full sslrootcert={authority}");
            }
            None => text += " sslmode=disable",
        }
        text
    }
}

/// The files of one server.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) folder: PathBuf,
    pub(super) config: PathBuf,
    pub(super) rules: PathBuf,
    pub(super) data: PathBuf,
    pub(super) log: PathBuf,
    pub(super) tls: TlsFiles,
}

impl Layout {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            config: folder.join("postgresql.conf"),
            rules: folder.join("pg_hba.conf"),
            // The guard looks for it by this name.
            data: folder.join("data"),
            log: folder.join("log"),
            tls: TlsFiles::in_folder(folder),
        }
    }
}

/// As a value of a configuration file, or of a connection string.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// As a value in SQL.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// As a name in SQL.
pub(super) fn name(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// Without what it has to say.
impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passwords")
    }
}

/// Without its password.
impl std::fmt::Debug for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Role({} {})", self.name, self.attributes)
    }
}
