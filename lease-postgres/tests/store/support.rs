//! Servers, stores and requests.

pub(crate) mod transactions;

use std::sync::OnceLock;
use std::time::Duration;

use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{
    AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Owner, RenewRequest, StoreError,
    Token, TokenRule, Ttl,
};
use lease_postgres::sqlx::{Connection as _, PgConnection};
use lease_postgres::{PostgresOptions, PostgresStore};

pub(crate) const LONG: Duration = Duration::from_secs(60);

/// One server for all tests that do nothing to it; each has a schema of its own.
pub(crate) fn server() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(|| {
        PostgresServer::builder()
            .fsync(false)
            .config("max_connections", "300")
            .start()
            .unwrap()
    })
}

pub(crate) fn options(schema: &str) -> PostgresOptions {
    options_at(server(), schema)
}

pub(crate) fn options_at(server: &PostgresServer, schema: &str) -> PostgresOptions {
    let options = PostgresOptions::from_url(&server.url().to_string()).unwrap();
    options.schema(schema).unwrap()
}

/// A connection beside the store's.
pub(crate) async fn connection() -> PgConnection {
    PgConnection::connect(&server().url().to_string())
        .await
        .unwrap()
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

pub(crate) fn ask(name: &str, owner: Owner, ttl: Duration) -> AcquireRequest {
    AcquireRequest {
        key: key(name),
        owner,
        ttl: Ttl::new(ttl).unwrap(),
        label: Label::EMPTY,
        rule: TokenRule::NEXT,
        waits: None,
    }
}

pub(crate) fn owner() -> Owner {
    Owner::random().unwrap()
}

pub(crate) fn renewal(name: &str, owner: Owner, token: Token) -> RenewRequest {
    RenewRequest {
        key: key(name),
        owner,
        token,
        ttl: Ttl::new(LONG).unwrap(),
    }
}

/// Acquires a key that is free.
pub(crate) async fn grant(
    store: &PostgresStore,
    name: &str,
    ttl: Duration,
) -> Result<(Owner, Token), StoreError> {
    let me = owner();
    match store.acquire(&ask(name, me, ttl)).await? {
        AcquireOutcome::Granted(granted) => Ok((me, granted.token)),
        other => panic!("{name} is free, and not {other:?}"),
    }
}

/// Waits for what is bound to happen.
pub(crate) async fn until(mut happens: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !happens() {
        assert!(began.elapsed() < LONG, "it has not happened");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
