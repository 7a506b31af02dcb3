//! What several test files need.
// Each test file uses a part of it.
#![allow(dead_code, unreachable_pub)]

use std::time::{Duration, Instant};

use lease_conformance::servers::redis::{RedisServer, RedisUrl};
use lease_core::{
    AcquireOutcome, AcquireRequest, Granted, Key, KeyState, Label, LeaseBackend, Owner,
    RenewRequest, StoreError, Token, TokenRule, Ttl,
};
use lease_redis::{RedisOptions, RedisStore};

/// Far more than anything takes that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn plain() -> RedisServer {
    RedisServer::builder().start().unwrap()
}

pub fn options(url: &RedisUrl) -> RedisOptions {
    RedisOptions::from_url(&url.to_string()).unwrap()
}

pub async fn store(server: &RedisServer) -> RedisStore {
    options(&server.url()).open().await.unwrap()
}

pub fn key(key: &str) -> Key {
    Key::new(key).unwrap()
}

pub fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

pub fn ttl_ms(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

pub fn request(name: &str, ms: u64) -> AcquireRequest {
    AcquireRequest {
        key: key(name),
        owner: Owner::random().unwrap(),
        ttl: ttl_ms(ms),
        label: Label::new("test").unwrap(),
        rule: TokenRule::NEXT,
        waits: None,
    }
}

pub fn exactly(name: &str, ms: u64, number: u64) -> AcquireRequest {
    AcquireRequest {
        rule: TokenRule::Exactly(token(number)),
        ..request(name, ms)
    }
}

pub fn renewal(request: &AcquireRequest, token: Token) -> RenewRequest {
    RenewRequest {
        key: request.key.clone(),
        owner: request.owner,
        token,
        ttl: request.ttl,
    }
}

#[track_caller]
pub fn granted(outcome: AcquireOutcome) -> Granted {
    match outcome {
        AcquireOutcome::Granted(granted) => granted,
        other => panic!("not granted: {other:?}"),
    }
}

/// Asks again until there is an answer, as callers do after a transient error.
pub async fn persist<T, F>(mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    let started = Instant::now();
    loop {
        match tokio::time::timeout(PATIENCE, call()).await.unwrap() {
            Ok(answer) => return answer,
            Err(e) => assert!(e.is_transient() && started.elapsed() < PATIENCE, "{e}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Looks until `wanted` holds of the key.
pub async fn until(store: &RedisStore, name: &str, wanted: impl Fn(&KeyState) -> bool) -> KeyState {
    let started = Instant::now();
    loop {
        let state = store.inspect(&key(name)).await.unwrap();
        if wanted(&state) {
            return state;
        }
        assert!(started.elapsed() < PATIENCE, "{state:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// How many keys the server's database holds.
pub fn keys(server: &RedisServer) -> i64 {
    server.command(&["DBSIZE"]).unwrap().integer().unwrap()
}

/// A number from the environment, for longer runs.
pub fn from_environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}
