//! The addresses of a server, as clients write them.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::servers::parts::encoded;

/// The URL of a server; `to_string` gives the text.
///
/// It starts as the address of the server's own port, and as the owner of its
/// database.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    pub(super) place: Place,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) database: String,
    pub(super) options: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp {
        address: SocketAddr,
        /// The authority to trust, with TLS.
        authority: Option<PathBuf>,
    },
    Unix {
        folder: PathBuf,
        port: u16,
    },
}

impl PostgresUrl {
    /// As this user.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.user = name.to_owned();
        self.password = password.to_owned();
        self
    }

    /// The database of this name, which must exist.
    #[must_use]
    pub fn database(mut self, name: &str) -> Self {
        self.database = name.to_owned();
        self
    }

    /// One more parameter, such as `application_name`, or `options` for settings
    /// of the session: `-c timezone=Asia/Tokyo`.
    #[must_use]
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.options.push((name.to_owned(), value.to_owned()));
        self
    }

    /// By another address that leads to the server, such as a proxy's or a
    /// pooler's. A URL of the unix socket becomes one of TCP, without TLS.
    #[must_use]
    pub fn through(mut self, address: SocketAddr) -> Self {
        let authority = match self.place {
            Place::Tcp { authority, .. } => authority,
            Place::Unix { .. } => None,
        };
        self.place = Place::Tcp { address, authority };
        self
    }

    /// The user's name in it.
    #[must_use]
    pub fn user_name(&self) -> &str {
        &self.user
    }

    /// The password in it, as plain text.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    pub(super) fn on_socket(folder: &Path, port: u16, user: &str, password: &str) -> Self {
        Self {
            place: Place::Unix {
                folder: folder.to_owned(),
                port,
            },
            user: user.to_owned(),
            password: password.to_owned(),
            database: super::DATABASE.to_owned(),
            options: Vec::new(),
        }
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (user, password) = (encoded(&self.user), encoded(&self.password));
        write!(f, "postgres://{user}:{password}@")?;
        match &self.place {
            Place::Tcp { address, .. } => write!(f, "{address}")?,
            Place::Unix { folder, port } => {
                write!(f, "{}:{port}", encoded(&folder.display().to_string()))?;
            }
        }
        write!(f, "/{}", encoded(&self.database))?;
        // Never a guess: a client that may choose would try both.
        let (mode, authority) = match &self.place {
            Place::Tcp {
                authority: Some(authority),
                ..
            } => ("verify-full", Some(authority.display().to_string())),
            _ => ("disable", None),
        };
        write!(f, "?sslmode={mode}")?;
        if let Some(authority) = authority {
            write!(f, "&sslrootcert={}", encoded(&authority))?;
        }
        for (name, value) in &self.options {
            write!(f, "&{}={}", encoded(name), encoded(value))?;
        }
        Ok(())
    }
}

/// Without the password.
impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresUrl")
            .field("place", &self.place)
            .field("user", &self.user)
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_passwords_and_folders_are_encoded() {
        let unix = PostgresUrl::on_socket(Path::new("/tmp/s"), 7000, "me", "a/b@c");
        assert_eq!(
            unix.to_string(),
            "postgres://me:a%2Fb%40c@%2Ftmp%2Fs:7000/postgres?sslmode=disable"
        );
        assert!(!format!("{unix:?}").contains("a/b@c"));
        let place = Place::Tcp {
            address: ([127, 0, 0, 1], 7000).into(),
            authority: Some("/tmp/s/ca.pem".into()),
        };
        let tls = PostgresUrl { place, ..unix }.option("options", "-c timezone=UTC");
        assert_eq!(
            tls.to_string(),
            "postgres://me:a%2Fb%40c@127.0.0.1:7000/postgres?sslmode=verify-full\
             &sslrootcert=%2Ftmp%2Fs%2Fca.pem&options=-c%20timezone%3DUTC"
        );
    }
}
