//! Where a server is, and how to get in.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use super::postmaster::Postmaster;
use super::url::{Place, PostgresUrl};
use super::{ADMIN, OWNER, PostgresServer};
use crate::servers::parts::last_lines;

impl PostgresServer {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port.port()).into()
    }

    /// How to connect: by its port, as the [owner](OWNER) of its database.
    #[must_use]
    pub fn url(&self) -> PostgresUrl {
        PostgresUrl {
            place: Place::Tcp {
                address: self.address(),
                authority: self.authority_pem().map(Path::to_owned),
            },
            ..self.unix_url()
        }
    }

    /// As [`url`](Self::url), by the server's unix socket.
    #[must_use]
    pub fn unix_url(&self) -> PostgresUrl {
        let owner = &self.passwords.owner;
        PostgresUrl::on_socket(&self.place.folder, self.port.port(), OWNER, owner)
    }

    /// As [`url`](Self::url), as a role that may do everything.
    #[must_use]
    pub fn superuser_url(&self) -> PostgresUrl {
        self.url().user(ADMIN, &self.passwords.admin)
    }

    /// How the kit itself connects.
    pub(super) fn admin_url(&self) -> PostgresUrl {
        self.unix_url().user(ADMIN, &self.passwords.admin)
    }

    /// The certificate, in a PEM file, that a client must trust; `None` without
    /// TLS.
    #[must_use]
    pub fn authority_pem(&self) -> Option<&Path> {
        self.settings.tls.then_some(&self.place.tls.authority)
    }

    /// The server's folder, with its data, its configuration, its log and its
    /// socket.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.place.folder
    }

    /// The number of the server's first process, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.state().running().and_then(Postmaster::id)
    }

    /// The end of what it said, of all its runs.
    #[must_use]
    pub fn log(&self) -> String {
        last_lines(&fs::read_to_string(&self.place.log).unwrap_or_default())
    }
}
