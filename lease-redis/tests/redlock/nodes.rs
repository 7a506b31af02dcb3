//! Nodes that are away, slow, or back again.

use std::time::{Duration, Instant};

use lease_core::{
    AcquireOutcome, AdmitError, Gate, InvalidInput, LeaseBackend, RefusedReason, ReleaseOutcome,
    RenewOutcome, StoreError, StoreErrorKind, Ttl,
};
use lease_redis::RedlockStore;

use crate::kit::{QUARANTINE, asked, initialised, lasting, opened, options, start};
use crate::support::*;

/// Far less than any limit for a silent node, and far more than a round trip.
const NO_DELAY: Duration = Duration::from_millis(400);

async fn one_life(store: &RedlockStore, name: &str) {
    let mine = request(name, 30_000);
    let token = granted(store.acquire(&mine).await.unwrap()).token;
    let renew = renewal(&mine, token);
    assert_eq!(store.renew(&renew).await.unwrap(), RenewOutcome::Renewed);
    let release = store.release(&mine.key, mine.owner, token);
    assert_eq!(release.await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_is_killed_or_silent_costs_no_time() {
    let nodes = start(5);
    let options = lasting(&nodes.hosts());
    let before = opened(options.clone()).await;
    one_life(&before, "a").await;
    nodes.servers()[1].kill().unwrap();
    nodes.servers()[3].pause().unwrap();
    let begin = Instant::now();
    one_life(&before, "b").await;
    // It is opened without them, too.
    let after = options.open().await.unwrap();
    one_life(&after, "c").await;
    assert!(begin.elapsed() < NO_DELAY, "{:?}", begin.elapsed());
    nodes.servers()[3].resume().unwrap();
}

#[tokio::test]
async fn without_a_majority_the_error_names_each_node() {
    let nodes = start(3);
    let options = lasting(&nodes.hosts());
    initialised(options.clone()).await;
    let store = options.clone().open().await.unwrap();
    for server in &nodes.servers()[1..] {
        server.kill().unwrap();
    }
    let named = |error: &StoreError| {
        assert!(error.is_transient(), "{error}");
        let words = error.to_string();
        for server in &nodes.servers()[1..] {
            assert!(words.contains(&server.address().to_string()), "{words}");
        }
        assert!(words.contains("2 of 3 nodes"), "{words}");
    };
    let error = options.clone().open().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    named(&error);
    named(&store.acquire(&request("a", 500)).await.unwrap_err());
    let ledger = key("ledger");
    match store.admit(&ledger, token(7)).await {
        Err(AdmitError::Store(error)) => named(&error),
        other => panic!("{other:?}"),
    }

    // They have forgotten everything, and no majority grants what may be held.
    for server in &nodes.servers()[1..] {
        server.start().unwrap();
    }
    let refused = asked(&store, "a", 500).await;
    assert!(matches!(
        refused,
        AcquireOutcome::Refused(RefusedReason::Quarantine { .. })
    ));
}

#[tokio::test]
async fn a_node_that_comes_back_empty_grants_nothing_until_its_quarantine_is_over() {
    let nodes = start(3);
    let store = opened(options(&nodes.hosts())).await;
    let mine = request("held", 1_400);
    granted(store.acquire(&mine).await.unwrap());
    let begin = Instant::now();
    // Each in its turn: a node that is in quarantine has no vote, and the others
    // remember.
    nodes.servers()[0].restart_empty().unwrap();
    let held = asked(&store, "held", 500).await;
    assert!(matches!(held, AcquireOutcome::Held(_)), "{held:?}");
    // Two of three open nodes grant other keys meanwhile.
    one_life_within(&store, "free", 500).await;
    nodes.servers()[1].restart_empty().unwrap();
    let refused = asked(&store, "other", 500).await;
    let AcquireOutcome::Refused(RefusedReason::Quarantine { remaining }) = refused else {
        panic!("{refused:?}");
    };
    // The first node's is over first.
    assert!(remaining <= QUARANTINE, "{remaining:?}");
    let next = request("held", 500);
    loop {
        match persist(|| store.acquire(&next)).await {
            AcquireOutcome::Granted(_) => break,
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        assert!(begin.elapsed() < PATIENCE);
    }
    // Not while the former holder may have believed in its lease.
    assert!(
        begin.elapsed() >= Duration::from_millis(1_300),
        "{:?}",
        begin.elapsed()
    );
}

async fn one_life_within(store: &RedlockStore, name: &str, ms: u64) {
    let mine = request(name, ms);
    let token = granted(persist(|| store.acquire(&mine)).await).token;
    let release = store.release(&mine.key, mine.owner, token);
    assert_eq!(release.await.unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn no_ttl_outlasts_the_quarantine() {
    let nodes = start(1);
    let store = opened(options(&nodes.hosts())).await;
    assert_eq!(store.guarantees().ttl.max, QUARANTINE);
    let long = request("a", 1_501);
    let error = store.acquire(&long).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::InvalidInput);
    let source = std::error::Error::source(&error).unwrap();
    assert!(matches!(
        source.downcast_ref(),
        Some(InvalidInput::TtlOutOfRange { .. })
    ));
    let renew = renewal(&long, token(1));
    assert!(store.renew(&renew).await.is_err());
    assert!(store.renew_many(&[renew]).await[0].is_err());
}

#[tokio::test]
async fn another_quarantine_is_refused() {
    let nodes = start(3);
    let store = opened(options(&nodes.hosts())).await;
    one_life_within(&store, "a", 500).await;
    let other = lasting(&nodes.hosts()).open().await.unwrap();
    let error = other.acquire(&request("a", 500)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refusing);
    assert!(error.to_string().contains("1500 ms"), "{error}");
    let other = lasting(&nodes.hosts()).quarantine(Ttl::new(QUARANTINE).unwrap());
    one_life_within(&other.open().await.unwrap(), "a", 500).await;
}

#[tokio::test]
async fn the_gate_refuses_what_a_majority_knows_to_be_stale() {
    let nodes = start(3);
    let store = opened(lasting(&nodes.hosts())).await;
    let (ledger, servers) = (key("ledger"), nodes.servers());
    servers[0].kill().unwrap();
    store.admit(&ledger, token(8)).await.unwrap();
    servers[0].start().unwrap();
    servers[1].kill().unwrap();
    let stale = store.admit(&ledger, token(7)).await;
    assert!(matches!(stale, Err(AdmitError::Stale(_))), "{stale:?}");
    // A connection to the one that was away may be found dead only now.
    let begin = Instant::now();
    while let Err(AdmitError::Store(error)) = store.admit(&ledger, token(9)).await {
        assert!(
            error.is_transient() && begin.elapsed() < PATIENCE,
            "{error}"
        );
    }
}
