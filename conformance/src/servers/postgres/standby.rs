//! Standbys: servers that follow another, and can take its place.
//!
//! To hold changes back, put a [`FaultProxy`](crate::proxy::FaultProxy) between a
//! primary and its standby
//! ([`standby_through`](super::PostgresBuilder::standby_through)): what it holds
//! has not arrived, and is lost with the primary.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::config::Primary;
use super::programs::Programs;
use super::psql::ask;
use super::url::Place;
use super::{ADMIN, PostgresServer, ServerError, config};
use crate::servers::account::{Account, give};
use crate::servers::parts::{LIMIT, until};
use crate::servers::tool::{as_account, succeed};

impl PostgresServer {
    /// Of a standby: its name at its primary.
    #[must_use]
    pub fn name(&self) -> String {
        match &self.settings.name {
            Some(name) => name.clone(),
            None => format!("standby_{}", self.address().port()),
        }
    }

    /// Whether it follows another server, now.
    ///
    /// # Errors
    /// As of [`sql`](Self::sql).
    pub fn is_standby(&self) -> Result<bool, ServerError> {
        Ok(self.sql("SELECT pg_is_in_recovery()")?.is_true())
    }

    /// Of a standby: waits until it follows its primary and shows all that the
    /// primary had committed when this was called.
    ///
    /// # Errors
    /// If that takes longer than half a minute, or as of [`sql`](Self::sql) of
    /// either; [`ServerError::NotAStandby`] of another.
    pub fn wait_until_linked(&self) -> Result<(), ServerError> {
        let primary = self.follows().ok_or(ServerError::NotAStandby)?;
        let psql = self.programs.path("psql");
        let there = ask(&psql, &primary.socket, "SELECT pg_current_wal_lsn()")?;
        let there = config::literal(there.value().unwrap_or_default());
        let question = format!(
            "SELECT pg_last_wal_replay_lsn() >= {there}::pg_lsn AND EXISTS (\
                SELECT FROM pg_stat_wal_receiver WHERE status = 'streaming')"
        );
        until("become a standby in touch with its primary", LIMIT, || {
            Ok(self.sql(&question)?.is_true())
        })
    }

    /// Makes a standby a primary; returns when it is one. Nobody tells the former
    /// primary, which goes on if it can.
    ///
    /// # Errors
    /// If that takes longer than half a minute, or as of [`sql`](Self::sql);
    /// [`ServerError::NotAStandby`] of another.
    pub fn promote(&self) -> Result<(), ServerError> {
        self.follows().ok_or(ServerError::NotAStandby)?;
        // A little before the kit's own patience ends.
        let seconds = LIMIT.as_secs() - 2;
        let done = self.sql(&format!("SELECT pg_promote(true, {seconds})"))?;
        if !done.is_true() {
            return Err(ServerError::TimedOut {
                what: "become a primary".into(),
                limit: LIMIT,
            });
        }
        self.promoted.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Of a primary: every commit waits until all of these have it on disk, also
    /// after a restart, for as long as it takes; without any, for none. Returns
    /// when it is so.
    ///
    /// # Errors
    /// If they do not follow this server within half a minute, or as of
    /// [`config_set`](Self::config_set).
    pub fn set_synchronous(&self, standbys: &[&PostgresServer]) -> Result<(), ServerError> {
        self.set_synchronous_of(standbys.len(), standbys)
    }

    /// Of a primary: its commits wait for the first so many of these standbys that are
    /// linked; the others stand by. Returns when the primary knows them all as such.
    ///
    /// # Errors
    /// As of [`set_synchronous`](Self::set_synchronous).
    pub fn set_synchronous_of(
        &self,
        needed: usize,
        standbys: &[&PostgresServer],
    ) -> Result<(), ServerError> {
        let names: Vec<String> = standbys.iter().map(|standby| standby.name()).collect();
        let quoted: Vec<String> = names.iter().map(|name| config::name(name)).collect();
        let value = match quoted.len() {
            0 => String::new(),
            _ => format!("FIRST {needed} ({})", quoted.join(", ")),
        };
        self.config_set("synchronous_standby_names", &value)?;
        let listed: Vec<String> = names.iter().map(|name| config::literal(name)).collect();
        if listed.is_empty() {
            return Ok(());
        }
        let spare = names.len().saturating_sub(needed);
        let question = format!(
            "SELECT count(DISTINCT application_name) FILTER (WHERE sync_state = 'sync') = {needed} \
             AND count(DISTINCT application_name) FILTER (WHERE sync_state = 'potential') = {spare} \
             FROM pg_stat_replication \
             WHERE state = 'streaming' AND application_name IN ({})",
            listed.join(", ")
        );
        until("hear of its synchronous standbys", LIMIT, || {
            Ok(self.sql(&question)?.is_true())
        })
    }
}

/// The data of a primary that runs, as those of a standby.
pub(super) fn copy_from(
    primary: &Primary,
    data: &Path,
    programs: &Programs,
    account: Option<Account>,
) -> Result<(), ServerError> {
    let Place::Unix { folder, port } = &primary.socket.place else {
        return Err(ServerError::NotRunning);
    };
    let mut copy = as_account(&programs.path("pg_basebackup"), account);
    copy.arg("--pgdata")
        .arg(data)
        .arg("--host")
        .arg(folder)
        .args(["--port", &port.to_string(), "--username", ADMIN])
        .args(["--no-password", "--checkpoint=fast", "--wal-method=stream"])
        // Much of its time, for a machine's end that no test brings about; and
        // a manifest that nobody checks.
        .args(["--no-sync", "--no-manifest"]);
    succeed(copy, LIMIT)?;
    let signal = data.join("standby.signal");
    std::fs::write(&signal, "")
        .map_err(|e| ServerError::io(format!("write {}", signal.display()), e))?;
    give(&signal, account)
}
