//! The kit's own client: `psql`.
//!
//! It comes with every Postgres, is not the driver that the stores under test
//! use, needs no runtime, and prints every type as text.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::url::{Place, PostgresUrl};
use crate::servers::parts::LIMIT;
use crate::servers::tool::{plainly, run};
use crate::servers::{ServerError, parts};

/// What no text in a test has in it.
const FIELD: char = '\u{1f}';
const RECORD: char = '\u{1e}';
const NULL: &str = "\u{1d}";
/// The server gives up first, with better words.
const GRACE: Duration = Duration::from_secs(5);

/// What a statement gave: rows of texts, as Postgres prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows(Vec<Vec<Option<String>>>);

impl Rows {
    /// The rows; `None` in them is NULL.
    #[must_use]
    pub fn rows(&self) -> &[Vec<Option<String>>] {
        &self.0
    }

    /// The first value of the first row; `None` if it is NULL or there is none.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.0.first()?.first()?.as_deref()
    }

    /// The first value as a number.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        self.value()?.parse().ok()
    }

    /// Whether the first value is true.
    #[must_use]
    pub fn is_true(&self) -> bool {
        self.value() == Some("t")
    }

    fn read(text: &str) -> Self {
        let Some(text) = text.strip_suffix('\n') else {
            return Self::default();
        };
        let value = |text: &str| (text != NULL).then(|| text.to_owned());
        let row = |text: &str| text.split(FIELD).map(value).collect();
        Self(text.split(RECORD).map(row).collect())
    }
}

/// Sends the text as one simple query, and gives the rows of its last statement.
pub(super) fn ask(psql: &Path, url: &PostgresUrl, text: &str) -> Result<Rows, ServerError> {
    let mut command = Command::new(psql);
    plainly(&mut command);
    let (host, port) = match &url.place {
        Place::Tcp { address, authority } => {
            if let Some(authority) = authority {
                command.env("PGSSLROOTCERT", authority);
                command.env("PGSSLMODE", "verify-full");
            }
            (address.ip().to_string(), address.port())
        }
        Place::Unix { folder, port } => (folder.display().to_string(), *port),
    };
    command
        .env("PGPASSWORD", &url.password)
        .env("PGCONNECT_TIMEOUT", LIMIT.as_secs().to_string())
        .env("PGAPPNAME", super::ADMIN)
        .args(["--no-psqlrc", "--no-password", "--quiet"])
        .args(["--tuples-only", "--no-align"])
        .args(["--host", &host, "--port", &port.to_string()])
        .args(["--username", &url.user, "--dbname", &url.database])
        .arg(format!("--field-separator={FIELD}"))
        .arg(format!("--record-separator={RECORD}"))
        .arg(format!("--pset=null={NULL}"))
        // With the SQLSTATE in an error.
        .arg("--variable=VERBOSITY=verbose")
        .arg("--variable=SHOW_ALL_RESULTS=off")
        // A backslash at the start would be a command of psql's own.
        .arg(format!("--command= {text}"));
    for (name, value) in &url.options {
        match name.as_str() {
            "options" => command.env("PGOPTIONS", value),
            "application_name" => command.env("PGAPPNAME", value),
            _ => &mut command,
        };
    }
    let said = run(command, parts::LIMIT + GRACE)?;
    if said.status.success() {
        return Ok(Rows::read(&said.output));
    }
    Err(ServerError::Command {
        // Its first word: the rest may have a secret in it.
        command: text.split_whitespace().next().unwrap_or_default().into(),
        source: said.errors.trim().to_owned().into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_null_and_the_empty_text_are_three_things() {
        assert_eq!(Rows::read("").rows().len(), 0);
        assert_eq!(Rows::read("\n").value(), Some(""));
        assert_eq!(Rows::read("\u{1d}\n").rows(), [[None]]);
        let rows = Rows::read("a\u{1f}b\nc\u{1e}1\u{1f}\u{1d}\n");
        assert_eq!(rows.rows()[0][1].as_deref(), Some("b\nc"));
        assert_eq!(rows.rows()[1], [Some("1".into()), None]);
    }
}
