//! What a test does to a server as its administrator.
//!
//! By the unix socket, whatever TLS, passwords, poolers and proxies the clients
//! have to go through; one session per call, so that none is lost in a restart.

use super::psql::{Rows, ask};
use super::{PostgresServer, PostgresUrl, ServerError, config};
use crate::servers::parts::{LIMIT, until};

impl PostgresServer {
    /// Runs statements in the database `postgres`, in the name of a role that may
    /// do everything; gives the rows of the last one. They go out as one simple
    /// query: several are one transaction.
    ///
    /// # Errors
    /// What the server answers, with its SQLSTATE; or that it runs not, or is
    /// paused.
    pub fn sql(&self, text: &str) -> Result<Rows, ServerError> {
        self.sql_at(&self.admin_url(), text)
    }

    /// As [`sql`](Self::sql), in the name and by the way of a URL that leads to
    /// this server.
    ///
    /// # Errors
    /// As of [`sql`](Self::sql).
    pub fn sql_at(&self, url: &PostgresUrl, text: &str) -> Result<Rows, ServerError> {
        self.state().answers()?;
        ask(&self.programs.path("psql"), url, text)
    }

    /// Ends sessions of clients, all that `which` chooses: a condition on
    /// `pg_stat_activity`, such as `usename = 'app'`, or `true`. Gives their
    /// number, maybe before the last of them has ended.
    ///
    /// # Errors
    /// As of [`sql`](Self::sql).
    pub fn terminate_backends(&self, which: &str) -> Result<u64, ServerError> {
        let ended = self.sql(&format!(
            "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND ({which})"
        ))?;
        let number = ended.integer().and_then(|number| number.try_into().ok());
        Ok(number.unwrap_or_default())
    }

    /// Changes a setting, also for the starts to come; returns when new sessions
    /// see it. One that needs a restart has its effect after that.
    ///
    /// # Errors
    /// If the server takes neither the name nor the value; then nothing changes.
    /// Or as of [`sql`](Self::sql).
    pub fn config_set(&self, name: &str, value: &str) -> Result<(), ServerError> {
        let mut changed = self.changed();
        let mut next = changed.clone();
        next.retain(|(known, _)| known != name);
        next.push((name.to_owned(), value.to_owned()));
        self.write_config(&next)?;
        let wrong = self.sql(&format!(
            // It says so, too, of what needs a restart.
            "SELECT error FROM pg_file_settings f WHERE name = {} AND error IS NOT NULL \
             AND NOT EXISTS (SELECT FROM pg_settings s WHERE s.name = f.name \
             AND context = 'postmaster')",
            config::literal(name)
        ));
        let wrong = wrong.and_then(|rows| match rows.value() {
            None => Ok(()),
            Some(words) => Err(ServerError::Command {
                command: format!("set {name}"),
                source: words.to_owned().into(),
            }),
        });
        if let Err(e) = wrong {
            self.write_config(&changed)?;
            return Err(e);
        }
        *changed = next;
        drop(changed);
        let loaded = "SELECT pg_conf_load_time()::text";
        let before = self.sql(loaded)?;
        self.sql("SELECT pg_reload_conf()")?;
        until("read its configuration again", LIMIT, || {
            Ok(self.sql(loaded)? != before)
        })
    }

    /// A setting as a new session of the superuser sees it; `None` if there is
    /// none of this name.
    ///
    /// # Errors
    /// As of [`sql`](Self::sql).
    pub fn setting(&self, name: &str) -> Result<Option<String>, ServerError> {
        let rows = self.sql(&format!(
            "SELECT current_setting({}, true)",
            config::literal(name)
        ))?;
        Ok(rows.value().map(str::to_owned))
    }
}
