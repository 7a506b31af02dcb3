//! The driver's client: its name at the server, its sockets, its certificates.

#[cfg(feature = "tls")]
pub(crate) mod tls;

use std::time::Duration;

use redis::io::tcp::socket2::TcpKeepalive;
use redis::{Client, ConnectionInfo, RedisResult};

/// Between the last byte and the first probe, and between probes: a peer that
/// is gone is noticed even by a connection that has nothing to say.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// TCP sends a lost packet again after 0.2 s or more; one loss is not the end.
const MIN_USER_TIMEOUT: Duration = Duration::from_secs(1);

/// How the store shows up in `CLIENT LIST`.
pub(crate) fn named(info: ConnectionInfo) -> ConnectionInfo {
    let login = info.redis_settings().clone();
    info.set_redis_settings(login.set_lib_name("leases", env!("CARGO_PKG_VERSION")))
}

/// The same client with sockets for short messages that must not wait, and that
/// are not believed in for longer than `response_timeout` when nothing comes
/// back.
pub(crate) fn tuned(client: Client, response_timeout: Duration) -> RedisResult<Client> {
    #[cfg(feature = "tls")]
    if matches!(
        client.get_connection_info().addr(),
        redis::ConnectionAddr::TcpTls { .. }
    ) {
        tls::choose_cryptography();
    }
    let info = client.get_connection_info().clone();
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
    Client::open(info.set_tcp_settings(tcp))
}
