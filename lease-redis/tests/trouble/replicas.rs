//! Grants that wait for replicas.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::redis::RedisServer;
use lease_core::{LeaseBackend, Leases, RenewOutcome, StoreErrorKind};
use lease_redis::RedisStore;

use crate::support::*;

/// Whose user may do everything but wait.
fn without_the_right() -> RedisServer {
    let builder = RedisServer::builder().user("app on >secret ~* &* +@all -wait");
    builder.start().unwrap()
}

async fn may_not_wait(server: &RedisServer) -> RedisStore {
    let options = options(&server.url().user("app", "secret"));
    let waiting = options.wait_for_replicas(1, Duration::from_millis(100));
    waiting.open().await.unwrap()
}

fn replica_of(server: &RedisServer) -> RedisServer {
    let replica = RedisServer::builder().replica_of(server).start().unwrap();
    replica.wait_until_linked().unwrap();
    replica
}

/// With time for a replica that has only just come.
async fn patiently_waiting(server: &RedisServer) -> RedisStore {
    let options = options(&server.url()).response_timeout(PATIENCE);
    let waiting = options.wait_for_replicas(1, PATIENCE / 2);
    waiting.open().await.unwrap()
}

/// The script has run by the time that the wait is refused: only what is given
/// back had no effect.
#[tokio::test]
async fn what_took_effect_before_its_wait_was_refused_is_given_back_or_unknown() {
    let server = without_the_right();
    let waiting = may_not_wait(&server).await;
    let plain = store(&server).await;

    let error = waiting.acquire(&request("new", 60_000)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("+wait"), "{error}");
    let state = plain.inspect(&key("new")).await.unwrap();
    assert!(state.holder.is_none(), "{state:?}");

    let held = request("held", 60_000);
    let token = granted(plain.acquire(&held).await.unwrap()).token;
    let error = waiting.renew(&renewal(&held, token)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome, "{error}");
}

/// The core does not come back for a grant that had no effect by the error's
/// word, so that one would stand in everybody's way for its whole TTL.
#[tokio::test]
async fn a_lease_whose_wait_was_refused_stands_in_nobodys_way() {
    let server = without_the_right();
    let leases = Leases::new(Arc::new(may_not_wait(&server).await));
    let refused = leases.lease("a").ttl(Duration::from_secs(600));
    refused.try_acquire().await.unwrap_err();
    let state = until(&store(&server).await, "a", |state| state.holder.is_none()).await;
    // It was there, and left its mark.
    assert!(state.high_water.is_some(), "{state:?}");
}

#[tokio::test]
async fn a_failover_in_the_midst_of_a_wait_makes_an_unknown_outcome() {
    let server = plain();
    let next = plain();
    let limit = PATIENCE;
    let waiting = options(&server.url())
        .response_timeout(2 * limit)
        .wait_for_replicas(1, limit);
    let waiting = waiting.open().await.unwrap();
    let request = request("a", 600_000);
    let asked = Instant::now();
    let acquire = tokio::spawn(async move { waiting.acquire(&request).await });
    // Granted, and the wait is right behind.
    until(&store(&server).await, "a", |state| state.holder.is_some()).await;
    let port = next.address().port().to_string();
    server.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let error = acquire.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::UnknownOutcome, "{error}");
    assert!(asked.elapsed() < limit);
}

/// A future that was begun and is not polled is nothing odd: it sits in a
/// `select!` whose other branch is at work.
#[tokio::test]
async fn a_caller_that_nobody_polls_keeps_no_other_waiting() {
    let server = plain();
    let _replica = replica_of(&server);
    let waiting = patiently_waiting(&server).await;
    granted(waiting.acquire(&request("first", 60_000)).await.unwrap());

    let begun = request("begun", 60_000);
    let mut unpolled = waiting.acquire(&begun);
    assert!((&mut unpolled).now_or_never().is_none());
    let other = request("other", 60_000);
    let other = tokio::time::timeout(PATIENCE, waiting.acquire(&other));
    granted(other.await.unwrap().unwrap());
}

#[tokio::test]
async fn a_lease_is_kept_beside_an_attempt_that_nobody_polls() {
    const TTL: Duration = Duration::from_secs(2);
    let server = plain();
    let _replica = replica_of(&server);
    let leases = Leases::new(Arc::new(patiently_waiting(&server).await));
    let held = leases.lease("held").ttl(TTL).acquire().await.unwrap();
    let begun = leases.lease("begun").ttl(TTL);
    let mut unpolled = Box::pin(begun.try_acquire());
    assert!((&mut unpolled).now_or_never().is_none());
    // Long enough to be lost.
    tokio::time::sleep(2 * TTL).await;
    held.check().unwrap();
}

/// The first call finds that the server does not know the script, and must not
/// wait for replicas before it sends it whole.
#[tokio::test]
async fn a_shortfall_takes_its_time_limit_once() {
    const LIMIT: Duration = Duration::from_millis(1500);
    let server = plain();
    let waiting = options(&server.url()).wait_for_replicas(1, LIMIT);
    let waiting = waiting.open().await.unwrap();
    let asked = Instant::now();
    let error = waiting.acquire(&request("a", 60_000)).await.unwrap_err();
    let took = asked.elapsed();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(took >= LIMIT && took < 2 * LIMIT, "{took:?}");
}

/// The server is silent for as long as it waits for its replicas, and rightly so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_on_a_slow_replica_leave_the_connection_to_others() {
    let server = plain();
    let path = FaultProxy::start(server.address()).unwrap();
    let link = FaultProxy::start(server.address()).unwrap();
    let replica = RedisServer::builder().replica_through(&server, link.address());
    let replica = replica.start().unwrap();
    replica.wait_until_linked().unwrap();
    link.delay(Duration::from_millis(75), Duration::from_millis(75));
    // Shorter than it takes the replica to confirm, longer than anything else.
    let impatience = Duration::from_millis(80);

    let waiting = options(&server.url().through(path.address()))
        .response_timeout(PATIENCE)
        .wait_for_replicas(1, PATIENCE / 2);
    let waiting = waiting.open().await.unwrap();
    let held = request("held", 600_000);
    let token = granted(waiting.acquire(&held).await.unwrap()).token;
    let renew = renewal(&held, token);
    let before = path.traffic().connections;
    for round in 0..12 {
        let gives_up = request(&format!("{round}"), 60_000);
        let _ = tokio::time::timeout(impatience, waiting.acquire(&gives_up)).await;
        let renewed = waiting.renew(&renew).await;
        assert_eq!(renewed.unwrap(), RenewOutcome::Renewed);
    }
    assert_eq!(path.traffic().connections, before);
}

/// The server answers waits over one connection one after the other. So does
/// the clock run: each call has its own time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_renewals_are_confirmed_by_a_replica_some_way_off() {
    // Twenty calls, of which each takes as long as the replica is away.
    const MANY: usize = 20 * 256;
    const WITHIN: Duration = Duration::from_millis(1500);
    let server = plain();
    let link = FaultProxy::start(server.address()).unwrap();
    let replica = RedisServer::builder().replica_through(&server, link.address());
    let replica = replica.start().unwrap();
    replica.wait_until_linked().unwrap();
    let near = store(&server).await;
    let all: Vec<_> = (0..MANY)
        .map(|number| request(&format!("{number}"), 600_000))
        .collect();
    let outcomes = futures_util::future::join_all(all.iter().map(|one| near.acquire(one))).await;
    let held: Vec<_> = all
        .iter()
        .zip(outcomes)
        .map(|(one, outcome)| renewal(one, granted(outcome.unwrap()).token))
        .collect();

    let first = patiently_waiting(&server).await;
    granted(first.acquire(&request("first", 60_000)).await.unwrap());
    link.delay(Duration::from_millis(75), Duration::from_millis(75));
    let waiting = options(&server.url())
        .response_timeout(WITHIN + Duration::from_millis(500))
        .wait_for_replicas(1, WITHIN);
    let waiting = waiting.open().await.unwrap();
    for outcome in waiting.renew_many(&held).await {
        assert_eq!(outcome.unwrap(), RenewOutcome::Renewed);
    }
}
