//! What a test does to a server as its administrator.
//!
//! By the unix socket, whatever TLS, passwords and proxies the clients have to
//! go through; one connection per call, so that none is lost in a restart.

use std::time::Duration;

use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError, Value};

use super::{ADMIN, RedisServer, Reply, ServerError};
use crate::servers::parts::{LIMIT, until};

/// To connect; a server that is not there refuses at once.
const CONNECT: Duration = Duration::from_secs(5);

impl RedisServer {
    /// Sends one command, in the name of a user who may do everything.
    ///
    /// # Errors
    /// What the server answers, or that it runs not or is paused.
    pub fn command(&self, words: &[&str]) -> Result<Reply, ServerError> {
        self.state().answers()?;
        self.ask(words).map_err(|e| ServerError::Command {
            command: words.first().copied().unwrap_or_default().to_owned(),
            source: Box::new(e),
        })
    }

    pub(super) fn can_answer(&self) -> bool {
        self.state().answers().is_ok()
    }

    pub(super) fn ask(&self, words: &[&str]) -> Result<Reply, RedisError> {
        let user = RedisConnectionInfo::default()
            .set_username(ADMIN)
            .set_password(&self.admin_password)
            .set_skip_set_lib_name();
        let info = ConnectionAddr::Unix(self.place.socket.clone())
            .into_connection_info()?
            .set_redis_settings(user);
        let mut connection = Client::open(info)?.get_connection_with_timeout(CONNECT)?;
        connection.set_read_timeout(Some(LIMIT))?;
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        let value: Value = command.query(&mut connection)?;
        Ok(Reply::from(value))
    }

    /// Writes a snapshot to disk; returns when it is there.
    ///
    /// # Errors
    /// If the server cannot write it.
    pub fn save(&self) -> Result<(), ServerError> {
        until("save its data", LIMIT, || match self.command(&["SAVE"]) {
            Ok(_) => Ok(true),
            // One for a replica, say; the next is ours.
            Err(e) if e.to_string().contains("in progress") => Ok(false),
            Err(e) => Err(e),
        })
    }

    /// Forgets all scripts: a client that sends only their hashes must send
    /// them again.
    ///
    /// # Errors
    /// As of [`command`](Self::command).
    pub fn script_flush(&self) -> Result<(), ServerError> {
        self.command(&["SCRIPT", "FLUSH", "SYNC"]).map(drop)
    }

    /// Removes every key of every database.
    ///
    /// # Errors
    /// As of [`command`](Self::command).
    pub fn flush_all(&self) -> Result<(), ServerError> {
        self.command(&["FLUSHALL", "SYNC"]).map(drop)
    }

    /// Changes a setting until the server's next start.
    ///
    /// # Errors
    /// If the server does not know the setting, or as of
    /// [`command`](Self::command).
    pub fn config_set(&self, name: &str, value: &str) -> Result<(), ServerError> {
        self.command(&["CONFIG", "SET", name, value]).map(drop)
    }

    /// One field of `INFO`, such as `role`; `None` if the server has it not.
    ///
    /// # Errors
    /// As of [`command`](Self::command).
    pub fn info(&self, field: &str) -> Result<Option<String>, ServerError> {
        let reply = self.command(&["INFO", "everything"])?;
        let lines = reply.text().unwrap_or_default().lines();
        Ok(lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| *name == field)
            .map(|(_, value)| value.to_owned()))
    }

    /// Of a replica: waits until it has the data of its primary and follows it.
    ///
    /// # Errors
    /// If that takes longer than half a minute, or as of
    /// [`command`](Self::command).
    pub fn wait_until_linked(&self) -> Result<(), ServerError> {
        until("become a replica in touch with its primary", LIMIT, || {
            Ok(self.info("master_link_status")?.as_deref() == Some("up"))
        })
    }

    /// Of a primary: waits until that many replicas follow it, by its own word.
    /// It says so later than they do.
    ///
    /// # Errors
    /// As of [`wait_until_linked`](Self::wait_until_linked).
    pub fn wait_until_followed(&self, replicas: usize) -> Result<(), ServerError> {
        until("be followed by its replicas", LIMIT, || {
            let reply = self.command(&["INFO", "replication"])?;
            let lines = reply.text().unwrap_or_default().lines();
            let online = lines
                .filter(|line| line.starts_with("slave") && line.contains("state=online"))
                .count();
            Ok(online == replicas)
        })
    }
}
