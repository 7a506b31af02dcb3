//! Settings of a server, and their text.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{NatsServer, ServerError};
use crate::servers::tls::TlsFiles;

/// The user in whose name a client of a closed server comes.
const USER: &str = "kit";

/// Where a server has its things.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) config: PathBuf,
    pub(super) data: PathBuf,
    pub(super) log: PathBuf,
    pub(super) output: PathBuf,
    pub(super) tls: TlsFiles,
}

/// A node's place in its cluster.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) name: String,
    /// Where it listens for the others.
    pub(super) port: u16,
    /// Where they do.
    pub(super) others: Vec<u16>,
}

/// Settings of a [`NatsServer`].
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct NatsBuilder {
    pub(super) tls: bool,
    pub(super) closed: bool,
    pub(super) lines: Vec<String>,
    pub(super) member: Option<Member>,
}

impl NatsBuilder {
    /// Nobody may connect without a name and a password, which are in the
    /// server's [`url`](NatsServer::url).
    pub fn closed(mut self) -> Self {
        self.closed = true;
        self
    }

    /// TLS alone, with a certificate for `localhost` and `127.0.0.1`
    /// ([`NatsServer::authority_pem`]).
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// One more line of the server's configuration.
    pub fn config(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Starts it; returns when JetStream serves.
    ///
    /// # Errors
    /// A program that is missing, or a server that does not start.
    pub fn start(self) -> Result<NatsServer, ServerError> {
        NatsServer::launch(self)
    }

    pub(super) fn login(&self, password: &str) -> Option<(String, String)> {
        self.closed.then(|| (USER.to_owned(), password.to_owned()))
    }

    pub(super) fn text(
        &self,
        place: &Layout,
        clients: u16,
        monitor: u16,
        password: &str,
    ) -> String {
        let mut text = String::new();
        let name = self.member.as_ref().map_or("alone", |m| m.name.as_str());
        let _ = writeln!(text, "server_name: {name}");
        let _ = writeln!(text, "listen: \"127.0.0.1:{clients}\"");
        let _ = writeln!(text, "http: \"127.0.0.1:{monitor}\"");
        let _ = writeln!(text, "log_file: {:?}", place.log);
        let _ = writeln!(text, "jetstream {{");
        let _ = writeln!(text, "  store_dir: {:?}", place.data);
        // By default three quarters of the machine's.
        let _ = writeln!(text, "  max_memory_store: 67108864");
        let _ = writeln!(text, "  max_file_store: 4294967296\n}}");
        if let Some((user, password)) = self.login(password) {
            let _ = writeln!(
                text,
                "authorization {{ user: {user}, password: {password:?} }}"
            );
        }
        if self.tls {
            let (cert, key) = (&place.tls.certificate, &place.tls.key);
            let _ = writeln!(text, "tls {{ cert_file: {cert:?}, key_file: {key:?} }}");
        }
        if let Some(member) = &self.member {
            let routes: Vec<_> = member
                .others
                .iter()
                .map(|port| format!("\"nats-route://127.0.0.1:{port}\""))
                .collect();
            let _ = writeln!(text, "cluster {{\n  name: kit");
            let _ = writeln!(text, "  listen: \"127.0.0.1:{}\"", member.port);
            // Clients must not learn of ways around a proxy.
            let _ = writeln!(text, "  no_advertise: true");
            let _ = writeln!(text, "  routes: [{}]\n}}", routes.join(", "));
        }
        for line in &self.lines {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}
