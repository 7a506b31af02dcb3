//! Servers, clients and the one who looks.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{Lease, Leases};
use lease_postgres::PostgresOptions;
use lease_postgres::sqlx::{Connection as _, PgConnection, query_scalar};

pub(crate) const LONG: Duration = Duration::from_secs(60);
pub(crate) const GRACE: Duration = PostgresOptions::GRACE;
/// For what must come, on a machine that does much else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The sessions of crash detection, and no others.
pub(crate) const WITNESSES: &str =
    "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)";

/// One server for all tests that do nothing to it; each has a schema of its own.
pub(crate) fn server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(|| start().unwrap())
}

pub(crate) fn start() -> Result<PostgresServer, lease_conformance::servers::ServerError> {
    PostgresServer::builder()
        .fsync(false)
        .config("max_connections", "200")
        .start()
}

pub(crate) fn options(url: &str, schema: &str) -> PostgresOptions {
    let options = PostgresOptions::from_url(url).unwrap();
    options.schema(schema).unwrap()
}

pub(crate) async fn leases(options: PostgresOptions) -> Leases {
    Leases::new(Arc::new(options.open().await.unwrap()))
}

/// A client whose leases end with its session.
pub(crate) async fn witnessed(url: &str, schema: &str) -> Leases {
    leases(options(url, schema).crash_detection(GRACE)).await
}

pub(crate) async fn hold(leases: &Leases, key: &str) -> Lease {
    leases.lease(key).ttl(LONG).acquire().await.unwrap()
}

/// What the session column says of a key; the table's owner may look.
pub(crate) async fn session(url: &str, schema: &str, key: &str) -> Option<i64> {
    let mut db = PgConnection::connect(url).await.unwrap();
    let table = format!("SELECT session FROM \"{schema}\".lease_keys WHERE key = $1");
    query_scalar(lease_postgres::sqlx::AssertSqlSafe(table))
        .bind(key)
        .fetch_one(&mut db)
        .await
        .unwrap()
}

/// Looks until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < PATIENCE, "{what} never comes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
