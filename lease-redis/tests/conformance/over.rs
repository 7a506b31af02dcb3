//! A connection as an application has one: it opens itself again.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value,
};

const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(crate) struct Reconnecting {
    client: Client,
    open: Arc<Mutex<Option<MultiplexedConnection>>>,
}

impl Reconnecting {
    pub(crate) fn open(url: &str) -> RedisResult<Self> {
        Ok(Self {
            client: Client::open(url)?,
            open: Arc::default(),
        })
    }

    async fn connection(&self) -> RedisResult<MultiplexedConnection> {
        if let Some(open) = self.open.lock().unwrap().clone() {
            return Ok(open);
        }
        // The driver's own limit of half a second is short for a busy machine.
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
        let new = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        *self.open.lock().unwrap() = Some(new.clone());
        Ok(new)
    }

    fn drop_if_broken<T>(&self, answer: &RedisResult<T>) {
        let broken = |error: &RedisError| error.is_io_error() || error.is_unrecoverable_error();
        if answer.as_ref().is_err_and(broken) {
            *self.open.lock().unwrap() = None;
        }
    }
}

impl ConnectionLike for Reconnecting {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        async move {
            let answer = self.connection().await?.send_packed_command(cmd).await;
            self.drop_if_broken(&answer);
            answer
        }
        .boxed()
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        cmd: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        async move {
            let mut connection = self.connection().await?;
            let answer = connection.send_packed_commands(cmd, offset, count).await;
            self.drop_if_broken(&answer);
            answer
        }
        .boxed()
    }

    fn get_db(&self) -> i64 {
        self.client.get_connection_info().redis_settings().db()
    }
}
