//! The store's own gate, over its own connections.

use std::sync::Arc;

use async_trait::async_trait;
use lease_core::{AdmitError, Gate, Key, Token};
use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisFuture, Value};

use super::RedisGate;
use crate::RedisStore;
use crate::lane::Lane;
use crate::link::Up;

/// A gate in the store's server, under the store's prefix, over a connection
/// that is opened anew when it fails. It is the same gate as a [`RedisGate`]
/// with that prefix: its marks stay for ever, and they wait for no replicas.
/// Prefer the fenced writes of [`RedisGate`] where the write goes to Redis too.
#[async_trait]
impl Gate for RedisStore {
    async fn admit(&self, resource: &Key, token: Token) -> Result<(), AdmitError> {
        let lane = self.plain_lane()?;
        let up = lane.sender().link().connection().await?;
        let gate = RedisGate {
            connection: Line { lane, up },
            names: self.names().clone(),
            forget_ms: None,
        };
        gate.admit(resource, token).await
    }
}

/// The store's connection as the driver's trait, given up when it fails.
#[derive(Clone)]
struct Line {
    lane: Arc<Lane>,
    up: Up,
}

impl ConnectionLike for Line {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.lane.sender().ask(&self.up, command))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        _offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(self.up.while_here(self.up.wire.send_all(commands, count)))
    }

    fn get_db(&self) -> i64 {
        0
    }
}
