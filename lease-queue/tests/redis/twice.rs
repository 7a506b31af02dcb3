//! A key that was asked for twice, since the connection was lost.

use std::sync::Arc;

use lease_conformance::proxy::{FaultProxy, On, Then};
use lease_conformance::servers::redis::RedisServer;
use lease_core::{AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Owner, TokenRule};
use lease_queue::KeyedLeases;
use lease_queue::redis::RedisQueues;

use crate::support::{name, ttl};

#[tokio::test]
async fn a_key_that_was_asked_for_twice_is_told_so_and_never_that_somebody_holds_it() {
    let server = RedisServer::builder().start().unwrap();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let url = server.url().through(proxy.address()).to_string();
    let store = RedisQueues::open(RedisQueues::options(&url).unwrap()).await;
    let leases = KeyedLeases::new(Arc::new(store.unwrap()), name("locks"));
    let request = || AcquireRequest {
        key: Key::new("k").unwrap(),
        owner: Owner::random().unwrap(),
        ttl: ttl(60_000),
        label: Label::EMPTY,
        rule: TokenRule::NEXT,
        waits: None,
    };
    // The scripts are there, and so is the connection.
    leases.ping().await.unwrap();
    leases.inspect(&request().key).await.unwrap();
    let lost = proxy.lose_reply(Then::Cut, On::Any);
    match leases.acquire(&request()).await.unwrap() {
        AcquireOutcome::Granted(granted) => assert!(granted.repeated, "{granted:?}"),
        other => panic!("{other:?}"),
    }
    lost.happened().await.unwrap();
    let lost = proxy.lose_reply(Then::Cut, On::Any);
    let error = leases.acquire(&request()).await.unwrap_err();
    assert!(error.is_unknown_outcome(), "{error}");
    lost.happened().await.unwrap();
}
