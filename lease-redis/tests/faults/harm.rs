//! What a test does to its server, away from the threads of its clients.

use std::sync::Arc;

use lease_conformance::servers::ServerError;
use lease_conformance::servers::redis::RedisServer;

/// Runs what blocks.
pub(crate) async fn harm<F>(server: &Arc<RedisServer>, act: F)
where
    F: FnOnce(&RedisServer) -> Result<(), ServerError> + Send + 'static,
{
    let server = Arc::clone(server);
    let done = tokio::task::spawn_blocking(move || act(&server));
    done.await.unwrap().unwrap();
}
