//! A standby takes the place of its primary, and the address moves with it.

use std::time::Duration;

use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::postgres::PostgresServer;
use lease_core::{
    AcquireOutcome, AcquireRequest, AdmitError, Gate, Key, Label, LeaseBackend, Owner,
    RenewOutcome, RenewRequest, StoreError, StoreErrorKind, Token, TokenRule, Ttl,
};
use lease_postgres::{PostgresOptions, PostgresStore};
use rand::RngExt;

use crate::load::Load;
use crate::{harm, pause};

const LONG: Duration = Duration::from_secs(60);

/// An address, and who is behind it first.
fn address_of(server: &PostgresServer) -> FaultProxy {
    FaultProxy::start(server.address()).unwrap()
}

async fn store_at(server: &PostgresServer, address: &FaultProxy) -> PostgresStore {
    let url = server.url().through(address.address()).to_string();
    let options = PostgresOptions::from_url(&url).unwrap();
    options.open().await.unwrap()
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

async fn acquire(store: &PostgresStore, name: &str) -> Result<(Owner, Token), StoreError> {
    let owner = Owner::random().unwrap();
    let request = AcquireRequest {
        key: key(name),
        owner,
        ttl: Ttl::new(LONG).unwrap(),
        label: Label::EMPTY,
        rule: TokenRule::NEXT,
        waits: None,
    };
    match store.acquire(&request).await? {
        AcquireOutcome::Granted(granted) => Ok((owner, granted.token)),
        other => panic!("{name} is free, and not {other:?}"),
    }
}

/// As somebody does who has patience with a store that moves.
async fn granted(store: &PostgresStore, name: &str) -> (Owner, Token) {
    for _ in 0..1000 {
        match acquire(store, name).await {
            Ok(granted) => return granted,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        pause(10).await;
    }
    panic!("{name} is never granted");
}

async fn renew(
    store: &PostgresStore,
    name: &str,
    (owner, token): (Owner, Token),
) -> Result<RenewOutcome, StoreError> {
    let (key, ttl) = (key(name), Ttl::new(LONG).unwrap());
    let request = RenewRequest {
        key,
        owner,
        token,
        ttl,
    };
    store.renew(&request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_that_takes_over_has_lost_nothing() {
    let primary = PostgresServer::builder().start().unwrap();
    let standby = PostgresServer::builder().standby_of(&primary);
    let standby = standby.start().unwrap();
    primary.set_synchronous(&[&standby]).unwrap();
    let address = address_of(&primary);
    let urls = (0..4).map(|_| primary.url().through(address.address()));
    let load = Load::start(300..=1500, urls).await;
    let mut random = load.random();
    pause(random.random_range(500..1500)).await;
    // Killed, or cut off from everybody and going on.
    if random.random_bool(0.5) {
        harm(|| primary.kill());
    }
    harm(|| standby.promote());
    address.lead_to(standby.address());
    address.cut();
    while load.goes_on() {
        pause(50).await;
    }
    pause(1500).await;
    load.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_without_its_synchronous_standby_grants_nothing() {
    let primary = PostgresServer::builder().fsync(false).start().unwrap();
    let standby = PostgresServer::builder().standby_of(&primary);
    let standby = standby.start().unwrap();
    primary.set_synchronous(&[&standby]).unwrap();
    let options = PostgresOptions::from_url(&primary.url().to_string()).unwrap();
    let store = options.response_timeout(Duration::from_secs(1));
    let store = store.open().await.unwrap();
    let held = acquire(&store, "before").await.unwrap();
    harm(|| standby.promote());
    for name in ["a", "b"] {
        // It is committed there, and there alone: nobody may be told.
        let error = acquire(&store, name).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome, "{error}");
    }
    let error = renew(&store, "before", held).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_asynchronous_standby_that_lags_makes_two_holders_and_the_token_tells_them_apart() {
    let primary = PostgresServer::builder().fsync(false).start().unwrap();
    let link = FaultProxy::start(primary.address()).unwrap();
    let standby = PostgresServer::builder().fsync(false);
    let standby = standby.standby_through(&primary, link.address());
    let standby = standby.start().unwrap();
    let address = address_of(&primary);
    let (first, second) = (
        store_at(&primary, &address).await,
        store_at(&primary, &address).await,
    );
    // It had been said.
    let promised = first.guarantees();
    assert!(!promised.exclusion_survives.failover && !promised.tokens_survive.failover);
    let kept = acquire(&first, "kept").await.unwrap();
    harm(|| standby.wait_until_linked());
    link.hold();
    let lost = acquire(&first, "lost").await.unwrap();
    first.admit(&key("resource"), lost.1).await.unwrap();
    harm(|| primary.kill());
    link.cut();
    harm(|| standby.promote());
    address.lead_to(standby.address());
    address.cut();
    // Two hold it, and the first one's minute has hardly begun.
    let again = granted(&second, "lost").await;
    assert!(again.1 > lost.1, "{again:?} {lost:?}");
    second.admit(&key("resource"), again.1).await.unwrap();
    let refused = first.admit(&key("resource"), lost.1).await.unwrap_err();
    assert!(matches!(refused, AdmitError::Stale(_)), "{refused:?}");
    let told = renew(&first, "lost", lost).await.unwrap();
    assert_ne!(told, RenewOutcome::Renewed, "it is told so");
    let told = renew(&first, "kept", kept).await.unwrap();
    assert_eq!(told, RenewOutcome::Renewed, "what had arrived is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_former_primary_that_takes_no_changes_any_more_is_left() {
    let primary = PostgresServer::builder().fsync(false).start().unwrap();
    let standby = PostgresServer::builder().fsync(false).standby_of(&primary);
    let standby = standby.start().unwrap();
    let address = address_of(&primary);
    let store = store_at(&primary, &address).await;
    let held = acquire(&store, "k").await.unwrap();
    renew(&store, "k", held).await.unwrap();
    harm(|| standby.wait_until_linked());
    harm(|| primary.config_set("default_transaction_read_only", "on"));
    harm(|| standby.promote());
    address.lead_to(standby.address());
    // The connections are as good as ever: the refusal alone tells.
    let error = acquire(&store, "new").await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    acquire(&store, "new").await.unwrap();
    let error = renew(&store, "k", held).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    let renewed = renew(&store, "k", held).await.unwrap();
    assert_eq!(renewed, RenewOutcome::Renewed);
    let there = "SELECT count(*) FROM public.lease_keys WHERE key = 'new'";
    assert_eq!(standby.sql(there).unwrap().integer(), Some(1));
    assert_eq!(primary.sql(there).unwrap().integer(), Some(0));
}
