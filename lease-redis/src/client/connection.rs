//! The driver's connection, and the task that drives it.

#[cfg(feature = "tls")]
use std::sync::Arc;

use redis::aio::{ConnectionLike, MultiplexedConnection};
#[cfg(feature = "tls")]
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use redis::{Cmd, Pipeline, RedisFuture, RedisResult, Value};
#[cfg(feature = "tls")]
use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(feature = "tls")]
use tokio::task::AbortHandle;

/// Closed when the last of its clones is dropped, whatever is under way.
#[derive(Clone)]
pub(crate) struct Connection {
    driver: MultiplexedConnection,
    /// Where it is not the driver's own.
    #[cfg(feature = "tls")]
    _task: Option<Arc<Task>>,
}

/// The driver ends the task of a connection that it has made itself, and waits for
/// the open answers of any other one: from a server that is silent for good.
#[cfg(feature = "tls")]
struct Task(AbortHandle);

#[cfg(feature = "tls")]
impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl From<MultiplexedConnection> for Connection {
    fn from(driver: MultiplexedConnection) -> Self {
        Self {
            driver,
            #[cfg(feature = "tls")]
            _task: None,
        }
    }
}

impl Connection {
    /// Sends one command; an error that the server answers is a value here.
    pub(crate) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.driver.send_packed_command(command).await
    }

    /// Sends commands in one go; errors that the server answers stand in the
    /// answers.
    pub(crate) async fn send_all(
        &mut self,
        commands: &Pipeline,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.driver.send_packed_commands(commands, 0, count).await
    }
}

#[cfg(feature = "tls")]
impl Connection {
    /// Logs in over this stream.
    ///
    /// # Cancel safety
    /// Safe: the stream is closed.
    pub(super) async fn over(
        login: &RedisConnectionInfo,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        config: AsyncConnectionConfig,
    ) -> RedisResult<Self> {
        let (driver, task) = MultiplexedConnection::new_with_config(login, stream, config).await?;
        let task = tokio::spawn(task).abort_handle();
        Ok(Self {
            driver,
            _task: Some(Arc::new(Task(task))),
        })
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.driver.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.driver.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.driver.get_db()
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn a_dropped_one_does_not_wait_for_an_answer_that_never_comes() {
        let (ours, mut server) = tokio::io::duplex(1 << 16);
        let login = RedisConnectionInfo::default().set_skip_set_lib_name();
        let connection = Connection::over(&login, ours, AsyncConnectionConfig::new());
        let mut connection = connection.await.unwrap();
        let mut clone = connection.clone();
        let asking = tokio::spawn(async move { clone.send(&redis::cmd("PING")).await });
        let mut ping = vec![0; 14];
        server.read_exact(&mut ping).await.unwrap();
        // While one is left it can be used.
        asking.abort();
        assert!(asking.await.unwrap_err().is_cancelled());
        server.write_all(b"+PONG\r\n").await.unwrap();
        let again = tokio::spawn(async move { connection.send(&redis::cmd("PING")).await });
        server.read_exact(&mut ping).await.unwrap();
        again.abort();
        let mut rest = Vec::new();
        let end = tokio::time::timeout(SOON, server.read_to_end(&mut rest)).await;
        assert_eq!(end.unwrap().unwrap(), 0);
    }
}
