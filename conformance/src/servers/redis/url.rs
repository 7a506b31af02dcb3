//! The addresses of a server, as clients write them.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::servers::parts::encoded;

/// The URL of a server; `to_string` gives the text.
///
/// It starts as the address of the server's own port, and as a user who may do
/// everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisUrl {
    pub(super) place: Place,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Tcp {
        address: SocketAddr,
        tls: bool,
    },
    Unix(PathBuf),
    Sentinels {
        addresses: Vec<SocketAddr>,
        /// What they call the primary.
        name: String,
        tls: bool,
        login: Option<(String, String)>,
    },
}

impl RedisUrl {
    /// As this user.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.user = Some(name.to_owned());
        self.password = Some(password.to_owned());
        self
    }

    /// As nobody in particular: for tests of what such a client may not do.
    #[must_use]
    pub fn anonymous(mut self) -> Self {
        (self.user, self.password) = (None, None);
        self
    }

    /// The database of this number.
    #[must_use]
    pub fn db(mut self, number: u32) -> Self {
        self.db = Some(number);
        self
    }

    /// As this user of the sentinels. Changes nothing in the URL of one server.
    #[must_use]
    pub fn sentinel_user(mut self, name: &str, password: &str) -> Self {
        if let Place::Sentinels { login, .. } = &mut self.place {
            *login = Some((name.to_owned(), password.to_owned()));
        }
        self
    }

    /// By another address that leads to the server, such as a proxy's. A URL of
    /// the unix socket becomes one of TCP, without TLS.
    #[must_use]
    pub fn through(mut self, address: SocketAddr) -> Self {
        let tls = matches!(
            self.place,
            Place::Tcp { tls: true, .. } | Place::Sentinels { tls: true, .. }
        );
        self.place = Place::Tcp { address, tls };
        self
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_deref().map(encoded);
        let password = self.password.as_deref().map(encoded);
        match &self.place {
            Place::Tcp { address, tls } => {
                f.write_str(if *tls { "rediss://" } else { "redis://" })?;
                if let Some(password) = password {
                    write!(f, "{}:{password}@", user.unwrap_or_default())?;
                }
                write!(f, "{address}")?;
                match self.db {
                    Some(db) => write!(f, "/{db}"),
                    None => Ok(()),
                }
            }
            Place::Sentinels {
                addresses,
                name,
                tls,
                login,
            } => {
                f.write_str(if *tls { "rediss" } else { "redis" })?;
                f.write_str("+sentinel://")?;
                if let Some(password) = password {
                    write!(f, "{}:{password}@", user.unwrap_or_default())?;
                }
                let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                write!(f, "{}/{}", addresses.join(","), encoded(name))?;
                if let Some(db) = self.db {
                    write!(f, "/{db}")?;
                }
                if let Some((user, password)) = login {
                    let (user, password) = (encoded(user), encoded(password));
                    write!(f, "?sentinel_user={user}&sentinel_password={password}")?;
                }
                Ok(())
            }
            Place::Unix(path) => {
                write!(f, "redis+unix://{}", path.display())?;
                let db = self.db.map(|db| db.to_string());
                let parts = [("user", user), ("pass", password), ("db", db)];
                let mut mark = '?';
                for (name, value) in parts {
                    if let Some(value) = value {
                        write!(f, "{mark}{name}={value}")?;
                        mark = '&';
                    }
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_passwords_are_encoded() {
        let url = RedisUrl {
            place: Place::Tcp {
                address: ([127, 0, 0, 1], 7000).into(),
                tls: true,
            },
            user: None,
            password: None,
            db: None,
        };
        assert_eq!(url.to_string(), "rediss://127.0.0.1:7000");
        let full = url.user("me", "a/b@c").db(3);
        assert_eq!(full.to_string(), "rediss://me:a%2Fb%40c@127.0.0.1:7000/3");
        let unix = RedisUrl {
            place: Place::Unix("/tmp/s".into()),
            ..full
        };
        assert_eq!(
            unix.to_string(),
            "redis+unix:///tmp/s?user=me&pass=a%2Fb%40c&db=3"
        );
    }
}
