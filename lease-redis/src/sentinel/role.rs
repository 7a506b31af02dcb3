//! What a server says of itself, when the sentinels disagree.

use redis::{AsyncConnectionConfig, RedisResult};
use tokio::time::{Instant, timeout_at};

use crate::client::Client;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Primary,
    Replica,
    /// It cannot be reached, or does not tell.
    Unknown,
}

/// Asks a server for its role, until `end` at most.
pub(super) async fn role(server: &Client, end: Instant) -> Role {
    // The driver's futures are large.
    match timeout_at(end, Box::pin(ask(server, end))).await {
        Ok(Ok(redis::Role::Primary { .. })) => Role::Primary,
        Ok(Ok(_)) => Role::Replica,
        Ok(Err(_)) | Err(_) => Role::Unknown,
    }
}

async fn ask(server: &Client, end: Instant) -> RedisResult<redis::Role> {
    let left = end.saturating_duration_since(Instant::now());
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(left));
    let mut connection = server.connect(left, config).await?;
    redis::cmd("ROLE").query_async(&mut connection).await
}
