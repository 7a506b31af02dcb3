//! Connections that end, go silent, or lead to the wrong server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use lease_conformance::proxy::{FaultProxy, On, Then};
use lease_conformance::servers::redis::RedisServer;
use lease_core::{FenceWhen, LeaseBackend, RenewOutcome, StoreErrorKind};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

/// An address that leads to one server after the other, as a name or a virtual
/// address does. What was connected stays where it is.
struct Address {
    port: u16,
    leads_to: Arc<AtomicU16>,
}

async fn address_of(server: &RedisServer) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let leads_to = Arc::new(AtomicU16::new(server.address().port()));
    let now = Arc::clone(&leads_to);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let port = now.load(Ordering::SeqCst);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    Address { port, leads_to }
}

/// It goes on answering, but only to refuse. Nothing else would end the
/// connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_primary_is_left_for_the_one_that_its_address_leads_to() {
    let (first, second) = (plain(), plain());
    let address = address_of(&first).await;
    let options =
        lease_redis::RedisOptions::from_url(&format!("redis://127.0.0.1:{}", address.port));
    let store = options.unwrap().open().await.unwrap();
    granted(store.acquire(&request("before", 60_000)).await.unwrap());

    let port = second.address().port();
    address.leads_to.store(port, Ordering::SeqCst);
    let port = port.to_string();
    first.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let request = request("after", 60_000);
    let started = Instant::now();
    let outcome = loop {
        match store.acquire(&request).await {
            Ok(outcome) => break outcome,
            Err(e) => assert!(started.elapsed() < PATIENCE, "{e}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    granted(outcome);
    let there = second.command(&["EXISTS", "leases:{after}"]).unwrap();
    assert_eq!(there.integer(), Some(1));
}

/// Servers close idle connections, and so do many things on the way.
#[tokio::test]
async fn a_connection_that_was_closed_while_idle_costs_no_error() {
    let server = plain();
    let store = store(&server).await;
    let closed = || {
        let gone = server
            .command(&["CLIENT", "KILL", "TYPE", "normal"])
            .unwrap();
        assert!(gone.integer() >= Some(1), "{gone:?}");
    };
    // None of these minds to take effect twice.
    let request = request("a", 60_000);
    closed();
    let token = granted(store.acquire(&request).await.unwrap()).token;
    closed();
    let renewed = store.renew(&renewal(&request, token)).await;
    assert_eq!(renewed.unwrap(), RenewOutcome::Renewed);
    closed();
    store.inspect(&request.key).await.unwrap();
    closed();
    let fenced = store.fence(&request.key, token, FenceWhen::AtExpiry);
    fenced.await.unwrap();
    closed();
    store.abandon(&request.key, request.owner).await.unwrap();
}

/// Far away, an answer takes longer than some callers wait. That says nothing
/// about the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impatient_callers_on_a_long_path_leave_the_connection_to_others() {
    const ROUNDS: u32 = 24;
    let server = plain();
    let path = FaultProxy::start(server.address()).unwrap();
    path.delay(Duration::from_millis(50), Duration::from_millis(50));
    let store = options(&server.url().through(path.address()));
    let store = store.open().await.unwrap();
    let held = request("held", 600_000);
    let token = granted(store.acquire(&held).await.unwrap()).token;
    let renew = renewal(&held, token);
    let before = path.traffic().connections;
    for round in 0..ROUNDS {
        let gives_up = request(&format!("{round}"), 60_000);
        let impatient = tokio::time::timeout(Duration::from_millis(70), store.acquire(&gives_up));
        let (renewed, _) = tokio::join!(store.renew(&renew), impatient);
        assert_eq!(renewed.unwrap(), RenewOutcome::Renewed);
    }
    // A machine that stands still for a while is like a connection that does.
    let more = path.traffic().connections - before;
    assert!(more < u64::from(ROUNDS / 4), "{more} more connections");
}

/// How long renewals, of which each has as much patience as a short lease, keep
/// failing on a connection that has gone silent under a patient caller.
async fn renewed_after(waits_for_replicas: bool, response_timeout: Duration) -> Duration {
    let server = plain();
    let replica = RedisServer::builder().replica_of(&server).start().unwrap();
    replica.wait_until_linked().unwrap();
    // A replica that has only just come confirms late, and a connection that has
    // seen that has more patience.
    let first = options(&server.url()).response_timeout(PATIENCE);
    let first = first.wait_for_replicas(1, PATIENCE / 2);
    let first = first.open().await.unwrap();
    granted(first.acquire(&request("first", 60_000)).await.unwrap());
    let path = FaultProxy::start(server.address()).unwrap();
    let mut options =
        options(&server.url().through(path.address())).response_timeout(response_timeout);
    if waits_for_replicas {
        options = options.wait_for_replicas(1, Duration::from_secs(1));
    }
    let store = options.open().await.unwrap();
    let held = request("held", 600_000);
    let token = granted(store.acquire(&held).await.unwrap()).token;
    let renew = renewal(&held, token);

    let silent = path.lose_reply(Then::Hang, On::Any);
    let theirs = store.clone();
    let patient = tokio::spawn(async move { theirs.acquire(&request("patient", 60_000)).await });
    silent.happened().await.unwrap();
    let started = Instant::now();
    loop {
        let renewal = tokio::time::timeout(Duration::from_millis(500), store.renew(&renew));
        if let Ok(Ok(outcome)) = renewal.await {
            assert_eq!(outcome, RenewOutcome::Renewed);
            break;
        }
        assert!(started.elapsed() < PATIENCE);
    }
    let took = started.elapsed();
    patient.abort();
    took
}

/// A path that has forgotten the connection tells nobody. A new one would do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patient_caller_on_a_silent_connection_does_not_hold_up_renewals() {
    const RESPONSE: Duration = Duration::from_secs(10);
    let (plain, waiting) = tokio::join!(
        renewed_after(false, RESPONSE),
        renewed_after(true, RESPONSE)
    );
    assert!(plain < RESPONSE / 2, "{plain:?}");
    assert!(waiting < RESPONSE / 2, "{waiting:?}");
}

/// The second try may come to a server that took over and does not write yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_try_that_fails_does_not_say_that_the_first_one_did_nothing() {
    let server = plain();
    let path = FaultProxy::start(server.address()).unwrap();
    let store = options(&server.url().through(path.address()));
    let store = store.open().await.unwrap();
    granted(store.acquire(&request("before", 60_000)).await.unwrap());

    let silent = path.lose_reply(Then::Hang, On::Any);
    let theirs = store.clone();
    let acquire = tokio::spawn(async move { theirs.acquire(&request("orphan", 60_000)).await });
    silent.happened().await.unwrap();
    let refuse = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    server.command(&refuse).unwrap();
    path.cut();
    let error = acquire.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome, "{error}");
    let state = store.inspect(&key("orphan")).await.unwrap();
    assert!(state.holder.is_some(), "{state:?}");
}
