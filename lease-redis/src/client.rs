//! Who a server is asked as, and how it is reached: its sockets, its certificates.

mod connection;
#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::io;
use std::time::Duration;

use redis::aio::PubSub;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{AsyncConnectionConfig, ConnectionInfo, RedisResult};
use tokio::time::timeout;

pub(crate) use connection::Connection;

/// Between the last byte and the first probe, and between probes: a peer that
/// is gone is noticed even by a connection that has nothing to say.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// TCP sends a lost packet again after 0.2 s or more; one loss is not the end.
const MIN_USER_TIMEOUT: Duration = Duration::from_secs(1);

/// The driver's client, and how TLS is spoken where that is ours to say.
#[derive(Clone)]
pub(crate) struct Client {
    driver: redis::Client,
    #[cfg(feature = "tls")]
    tls: Option<tls::Tls>,
}

/// As the caller made it. By TLS the driver connects, which knows its settings.
impl From<redis::Client> for Client {
    fn from(driver: redis::Client) -> Self {
        Self {
            driver,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

impl Client {
    /// A client that has nothing but this.
    pub(crate) fn open(info: ConnectionInfo) -> RedisResult<Self> {
        redis::Client::open(info).map(Self::from)
    }

    /// The same but for what the driver is told.
    pub(crate) fn with(&self, info: ConnectionInfo) -> RedisResult<Self> {
        Ok(Self {
            driver: redis::Client::open(info)?,
            #[cfg(feature = "tls")]
            tls: self.tls.clone(),
        })
    }

    /// The same, by TLS as it is said here.
    #[cfg(feature = "tls")]
    pub(crate) fn by(self, tls: tls::Tls) -> Self {
        Self {
            tls: Some(tls),
            ..self
        }
    }

    /// Where the server is, and who logs in.
    pub(crate) fn info(&self) -> &ConnectionInfo {
        self.driver.get_connection_info()
    }

    /// The same client with sockets for short messages that must not wait, and that
    /// are not believed in for longer than `response_timeout` when nothing comes
    /// back.
    pub(crate) fn tuned(&self, response_timeout: Duration) -> RedisResult<Self> {
        #[cfg(feature = "tls")]
        if matches!(self.info().addr(), redis::ConnectionAddr::TcpTls { .. }) {
            tls::choose_cryptography();
        }
        let info = self.info().clone();
        let mut tcp = info.tcp_settings().clone().set_nodelay(true);
        if tcp.keepalive().is_none() {
            tcp = tcp.set_keepalive(
                TcpKeepalive::new()
                    .with_time(KEEPALIVE)
                    .with_interval(KEEPALIVE),
            );
        }
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        if tcp.user_timeout().is_none() {
            tcp = tcp.set_user_timeout(response_timeout.max(MIN_USER_TIMEOUT));
        }
        #[cfg(not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")))]
        let _ = (response_timeout, MIN_USER_TIMEOUT);
        self.with(info.set_tcp_settings(tcp))
    }

    /// Connects and logs in, `within` that time.
    ///
    /// # Cancel safety
    /// Safe: the connection is closed again.
    pub(crate) async fn connect(
        &self,
        within: Duration,
        config: AsyncConnectionConfig,
    ) -> RedisResult<Connection> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let connecting = async {
                let stream = tls.stream(self.info()).await?;
                let login = self.info().redis_settings();
                Connection::over(login, stream, config).await
            };
            return timeout(within, connecting).await.unwrap_or_else(late);
        }
        let config = config.set_connection_timeout(Some(within));
        let connection = self
            .driver
            .get_multiplexed_async_connection_with_config(&config);
        connection.await.map(Connection::from)
    }

    /// Connects and logs in for messages, `within` that time.
    ///
    /// # Cancel safety
    /// Safe: the connection is closed again.
    pub(crate) async fn listen(&self, within: Duration) -> RedisResult<PubSub> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.tls {
            let connecting = async {
                let stream = tls.stream(self.info()).await?;
                PubSub::new(self.info().redis_settings(), stream).await
            };
            return timeout(within, connecting).await.unwrap_or_else(late);
        }
        let connecting = self.driver.get_async_pubsub();
        timeout(within, connecting).await.unwrap_or_else(late)
    }
}

fn late<T>(elapsed: tokio::time::error::Elapsed) -> RedisResult<T> {
    Err(io::Error::from(elapsed).into())
}

/// How the store shows up in `CLIENT LIST`.
pub(crate) fn named(info: ConnectionInfo) -> ConnectionInfo {
    let login = info.redis_settings().clone();
    info.set_redis_settings(login.set_lib_name("leases", env!("CARGO_PKG_VERSION")))
}
