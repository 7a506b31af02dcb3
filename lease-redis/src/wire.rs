//! A connection that stands: the driver's own, or one of the caller's.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisResult, Value};

use crate::client::Connection;

/// A connection of the caller's own, of whatever type.
#[async_trait]
pub(crate) trait Foreign: Send + Sync {
    async fn send(&self, command: &Cmd) -> RedisResult<Value>;
    async fn send_all(&self, commands: &Pipeline, count: usize) -> RedisResult<Vec<Value>>;
}

#[async_trait]
impl<C: ConnectionLike + Clone + Send + Sync> Foreign for C {
    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        self.clone().req_packed_command(command).await
    }

    async fn send_all(&self, commands: &Pipeline, count: usize) -> RedisResult<Vec<Value>> {
        self.clone().req_packed_commands(commands, 0, count).await
    }
}

#[derive(Clone)]
pub(crate) enum Wire {
    Ours(Connection),
    Foreign(Arc<dyn Foreign>),
}

impl Wire {
    /// Sends one command. An error that the server answers is an error here.
    pub(crate) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Ours(connection) => connection.clone().send(command).await,
            Self::Foreign(connection) => connection.send(command).await,
        }
        .and_then(Value::extract_error)
    }

    /// Sends commands in one go; errors that the server answers stand in the
    /// answers.
    pub(crate) async fn send_all(
        &self,
        commands: &Pipeline,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        match self {
            Self::Ours(connection) => connection.clone().send_all(commands, count).await,
            Self::Foreign(connection) => connection.send_all(commands, count).await,
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours(_) => "Ours",
            Self::Foreign(_) => "Foreign",
        })
    }
}

/// For what takes the driver's trait: the doctor.
impl ConnectionLike for Wire {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> redis::RedisFuture<'a, Value> {
        Box::pin(self.send(cmd))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        _offset: usize,
        count: usize,
    ) -> redis::RedisFuture<'a, Vec<Value>> {
        Box::pin(self.send_all(commands, count))
    }

    fn get_db(&self) -> i64 {
        0
    }
}
