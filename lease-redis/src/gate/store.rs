//! The store's own gate, over its own connections.

use std::sync::Arc;

use async_trait::async_trait;
use lease_core::{AdmitError, Gate, Key, Token};
use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, Pipeline, RedisFuture, Value};

use super::RedisGate;
use crate::RedisStore;
use crate::cluster::{Router, Trouble, What, slot};
use crate::lane::Lane;
use crate::link::Up;
use crate::store::Line;

/// A gate in the store's server, under the store's prefix, over a connection
/// that is opened anew when it fails. It is the same gate as a [`RedisGate`]
/// with that prefix: its marks stay for ever, and they wait for no replicas.
/// Prefer the fenced writes of [`RedisGate`] where the write goes to Redis too.
#[async_trait]
impl Gate for RedisStore {
    async fn admit(&self, resource: &Key, token: Token) -> Result<(), AdmitError> {
        let connection = match self.line()? {
            Line::One(lane) => {
                let up = lane.sender().link().connection().await?;
                Connected::One(lane, up)
            }
            Line::Cluster(router) => {
                let slot = slot::of(&self.names().gate(resource));
                // What fails here was not sent.
                router.owner(slot).await?.link().connection().await?;
                Connected::Cluster(router, slot)
            }
        };
        let gate = RedisGate {
            connection,
            names: self.names().clone(),
            forget_ms: None,
        };
        gate.admit(resource, token).await
    }
}

/// The store's connection as the driver's trait.
#[derive(Clone)]
enum Connected {
    /// Given up when it fails.
    One(Arc<Lane>, Up),
    /// To whichever node has the slot.
    Cluster(Arc<Router>, u16),
}

impl ConnectionLike for Connected {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            match self {
                Self::One(lane, up) => lane.sender().ask(up, command).await,
                Self::Cluster(router, slot) => {
                    let answer = router.route(*slot, What::Command(command)).await;
                    let answer = answer.map(|(answer, _)| answer);
                    answer.map_err(Trouble::into_driver)
                }
            }
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        _offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            match self {
                Self::One(lane, up) => lane.sender().ask_all(up, commands, count).await,
                // A gate sends none.
                Self::Cluster(..) => Err((ErrorKind::Client, "no pipelines to a cluster").into()),
            }
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}
