//! A key that was asked for twice, since the connection was lost.

use std::sync::Arc;

use lease_conformance::proxy::{FaultProxy, On, Then};
use lease_core::{AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Owner, TokenRule, Ttl};
use lease_queue::KeyedLeases;
use lease_queue::postgres::PostgresQueues;

use crate::support::{LONG, jobs, server};

#[tokio::test]
async fn a_key_that_was_asked_for_twice_is_told_so_and_never_that_somebody_holds_it() {
    let proxy = FaultProxy::start(server().address()).unwrap();
    let url = server().url().through(proxy.address()).to_string();
    let options = PostgresQueues::options(&url).unwrap();
    let store = PostgresQueues::open(options.schema("twice").unwrap()).await;
    let leases = KeyedLeases::new(Arc::new(store.unwrap()), jobs());
    let request = || AcquireRequest {
        key: Key::new("k").unwrap(),
        owner: Owner::random().unwrap(),
        ttl: Ttl::new(LONG).unwrap(),
        label: Label::EMPTY,
        rule: TokenRule::NEXT,
        waits: None,
    };
    // The connection is there.
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
