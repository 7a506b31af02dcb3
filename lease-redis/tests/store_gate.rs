//! The gate that a store is itself, against a real server.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use lease_conformance::servers::redis::{Persistence, RedisServer};
use lease_core::{AdmitError, Gate, Key, StoreErrorKind, Token};
use lease_redis::{RedisGate, RedisOptions, RedisStore};

fn options(server: &RedisServer) -> RedisOptions {
    RedisOptions::from_url(&server.url().to_string()).unwrap()
}

async fn open(server: &RedisServer) -> RedisStore {
    options(server).open().await.unwrap()
}

fn token(n: u64) -> Token {
    Token::new(n).unwrap()
}

fn resource() -> Key {
    Key::new("ledger").unwrap()
}

fn stale(refused: Result<(), AdmitError>) -> (u64, u64) {
    match refused {
        Err(AdmitError::Stale(stale)) => (stale.presented.get(), stale.admitted.get()),
        other => panic!("not stale: {other:?}"),
    }
}

fn kind(refused: Result<(), AdmitError>) -> StoreErrorKind {
    match refused {
        Err(AdmitError::Store(error)) => error.kind(),
        other => panic!("no failure of the store: {other:?}"),
    }
}

#[tokio::test]
async fn it_is_the_gate_of_its_prefix() {
    let server = RedisServer::builder().start().unwrap();
    let store = options(&server).prefix("app").unwrap();
    let store = store.open().await.unwrap();
    store.admit(&resource(), token(5)).await.unwrap();
    server.script_flush().unwrap();
    store.admit(&resource(), token(5)).await.unwrap();
    assert_eq!(stale(store.admit(&resource(), token(4)).await), (4, 5));

    let client = redis::Client::open(server.url().to_string()).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let gate = RedisGate::new(connection).prefix("app").unwrap();
    let refused = gate.set(&resource(), token(4), "total", 1).await;
    assert_eq!(stale(refused), (4, 5));
    gate.set(&resource(), token(6), "total", 1).await.unwrap();
    assert_eq!(stale(store.admit(&resource(), token(5)).await), (5, 6));
    // Another prefix is another gate.
    let other = open(&server).await;
    other.admit(&resource(), token(1)).await.unwrap();
}

#[tokio::test]
async fn it_comes_back_with_the_server_and_says_what_was_lost_on_the_way() {
    let server = RedisServer::builder()
        .persistence(Persistence::AofAlways)
        .start()
        .unwrap();
    let store = open(&server).await;
    store.admit(&resource(), token(5)).await.unwrap();
    server.kill().unwrap();
    // The cut may be found by the request itself or before it.
    let failed = kind(store.admit(&resource(), token(6)).await);
    assert!(
        matches!(
            failed,
            StoreErrorKind::Unavailable | StoreErrorKind::UnknownOutcome
        ),
        "{failed:?}"
    );
    assert_eq!(
        kind(store.admit(&resource(), token(6)).await),
        StoreErrorKind::Unavailable
    );
    server.start().unwrap();
    assert_eq!(stale(retried(&store, token(4)).await), (4, 5));
}

#[tokio::test]
async fn a_server_that_stands_still_is_given_up() {
    let server = RedisServer::builder().start().unwrap();
    let store = options(&server)
        .response_timeout(Duration::from_millis(200))
        .connect_timeout(Duration::from_millis(200));
    let store = store.open().await.unwrap();
    server.pause().unwrap();
    assert_eq!(
        kind(store.admit(&resource(), token(5)).await),
        StoreErrorKind::UnknownOutcome
    );
    server.resume().unwrap();
    retried(&store, token(5)).await.unwrap();
    assert_eq!(stale(store.admit(&resource(), token(4)).await), (4, 5));
}

#[tokio::test]
async fn something_foreign_admits_nobody() {
    let server = RedisServer::builder().start().unwrap();
    let store = open(&server).await;
    let name = "leases:gate:{ledger}";
    server.command(&["SET", name, "somebody's"]).unwrap();
    assert_eq!(
        kind(store.admit(&resource(), token(5)).await),
        StoreErrorKind::Refusing
    );
    let found = server.command(&["GET", name]).unwrap();
    assert_eq!(found.text(), Some("somebody's"));
}

/// Asks until the server answers: a new connection may take a moment.
async fn retried(store: &RedisStore, token: Token) -> Result<(), AdmitError> {
    let answer = async {
        loop {
            match store.admit(&resource(), token).await {
                Err(AdmitError::Store(error)) if error.is_transient() => {}
                answer => return answer,
            }
        }
    };
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, answer).await.unwrap()
}
