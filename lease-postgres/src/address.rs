//! Where a server is, in the words of an error, and why a way to it does not lead there.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use lease_core::{StoreError, StoreErrorKind};
use sqlx::postgres::PgConnectOptions;

use crate::errors::{self, Phase};

/// Nothing of who logs in and how.
#[derive(Debug)]
pub(crate) struct Address(String);

impl Address {
    pub(crate) fn of(connect: &PgConnectOptions) -> Self {
        let (host, port) = (connect.get_host(), connect.get_port());
        let folder = match connect.get_socket() {
            Some(folder) => Some(folder.clone()),
            None => host.starts_with('/').then(|| PathBuf::from(host)),
        };
        Self(match folder {
            Some(folder) => folder
                .join(format!(".s.PGSQL.{port}"))
                .display()
                .to_string(),
            None if host.contains(':') => format!("[{host}]:{port}"),
            None => format!("{host}:{port}"),
        })
    }

    /// A connection that could not be opened or set up.
    pub(crate) fn unreached(&self, doing: &str, error: sqlx::Error) -> StoreError {
        let no_password = errors::refuses_login(&error)
            .then(unread_passwords)
            .flatten();
        let error = errors::classify(Phase::Unsent, &format!("{doing} at {self}"), error);
        match no_password {
            Some(hint) => StoreError::new(error.kind(), format!("{}{hint}", error.message())),
            None => error,
        }
    }

    /// Nothing came for so long, and `before` is what was said last.
    pub(crate) fn silent(
        &self,
        doing: &str,
        limit: Duration,
        before: Option<String>,
    ) -> StoreError {
        let before = match before {
            Some(words) => format!(" (the attempt before it said: {words})"),
            None => String::new(),
        };
        StoreError::new(
            StoreErrorKind::Unavailable,
            format!(
                "{doing} at {self}: no answer within {limit:?}{before}; check that the server runs \
                 and can be reached from here, and where a pooler answers there, its log"
            ),
        )
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A file with passwords that the driver passes over, since others may read it.
#[cfg(unix)]
fn unread_passwords() -> Option<String> {
    use std::os::unix::fs::PermissionsExt as _;

    if std::env::var_os("PGPASSWORD").is_some() {
        return None;
    }
    let named = std::env::var_os("PGPASSFILE").map(PathBuf::from);
    let usual = std::env::home_dir().map(|home| home.join(".pgpass"));
    let file = [named, usual].into_iter().flatten().find(|file| {
        let mode = std::fs::metadata(file).map(|found| found.permissions().mode());
        mode.is_ok_and(|mode| mode & 0o077 != 0)
    })?;
    Some(format!(
        "; {0} is not read, since others may read it: chmod 600 {0} if the password stands there",
        file.display()
    ))
}

#[cfg(not(unix))]
fn unread_passwords() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_named_as_a_user_would_write_it() {
        for (url, place) in [
            ("postgres://u:secret@db.example:5433/app", "db.example:5433"),
            ("postgres://u:secret@127.0.0.1/app", "127.0.0.1:5432"),
            (
                "postgres:///app?host=/run/pg&user=u",
                "/run/pg/.s.PGSQL.5432",
            ),
        ] {
            let connect: PgConnectOptions = url.parse().unwrap();
            assert_eq!(Address::of(&connect).to_string(), place);
        }
        let six = PgConnectOptions::new_without_pgpass().host("::1").port(7);
        assert_eq!(Address::of(&six).to_string(), "[::1]:7");
    }
}
