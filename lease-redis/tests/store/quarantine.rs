//! The time after a restart in which nothing is granted.

use std::time::{Duration, Instant};

use lease_conformance::servers::redis::{Persistence, RedisServer};
use lease_core::{
    AcquireOutcome, LeaseBackend, RefusedReason, ReleaseOutcome, RenewOutcome, StoreErrorKind, Ttl,
};
use lease_redis::RedisStore;

use crate::support::*;

const MOST: Duration = Duration::from_millis(1500);
/// Between the server's clock and ours, for so short a time.
const APART: Duration = Duration::from_millis(50);

async fn opened(server: &RedisServer) -> RedisStore {
    let options = options(&server.url()).quarantine(Ttl::new(MOST).unwrap());
    options.open().await.unwrap()
}

async fn remaining(store: &RedisStore, name: &str) -> Option<Duration> {
    let request = request(name, 1000);
    match persist(|| store.acquire(&request)).await {
        AcquireOutcome::Refused(RefusedReason::Quarantine { remaining }) => Some(remaining),
        AcquireOutcome::Granted(granted) => {
            let release = store.release(&request.key, request.owner, granted.token);
            assert_eq!(release.await.unwrap(), ReleaseOutcome::Released);
            None
        }
        other => panic!("{other:?}"),
    }
}

/// Waits it out; what it tells on the way is true.
async fn wait_out(store: &RedisStore) {
    let mut ends: Option<Instant> = None;
    let first = Instant::now();
    loop {
        let before = Instant::now();
        let Some(left) = remaining(store, "a").await else {
            let ended = ends.expect("a quarantine at first");
            assert!(Instant::now() + APART >= ended);
            assert!(first.elapsed() + APART >= MOST, "{:?}", first.elapsed());
            return;
        };
        assert!(left <= MOST);
        // It ends when it said at first, and is not drawn out by who asks.
        let now = Instant::now();
        assert!(ends.is_none_or(|ends| before + left <= ends + APART));
        ends.get_or_insert(now + left);
        tokio::time::sleep((left / 3).max(Duration::from_millis(2))).await;
    }
}

#[tokio::test]
async fn it_tells_how_long_it_lasts_and_begins_anew_at_each_restart() {
    let server = plain();
    let store = opened(&server).await;
    wait_out(&store).await;
    assert_eq!(remaining(&store, "a").await, None);

    for clean in [true, false] {
        match clean {
            true => server.restart().unwrap(),
            false => {
                server.kill().unwrap();
                server.start().unwrap();
            }
        }
        wait_out(&store).await;
        assert_eq!(remaining(&opened(&server).await, "b").await, None);
    }
}

#[tokio::test]
async fn it_begins_when_it_is_first_asked_and_is_over_for_all_at_once() {
    let server = plain();
    let (first, second) = (opened(&server).await, opened(&server).await);
    let left = remaining(&first, "a").await.unwrap();
    tokio::time::sleep(left / 2).await;
    let later = remaining(&second, "b").await.unwrap();
    assert!(later <= left / 2 + APART, "{later:?} of {left:?}");
    tokio::time::sleep(later).await;
    assert_eq!(remaining(&first, "a").await, None);
    assert_eq!(remaining(&second, "b").await, None);
}

#[tokio::test]
async fn kept_grants_live_on_in_it() {
    let server = RedisServer::builder().persistence(Persistence::AofAlways);
    let server = server.start().unwrap();
    let store = opened(&server).await;
    wait_out(&store).await;
    let mine = request("mine", 1500);
    let token = granted(store.acquire(&mine).await.unwrap()).token;
    server.kill().unwrap();
    server.start().unwrap();

    let renew = renewal(&mine, token);
    let renewed = persist(|| store.renew(&renew)).await;
    assert_eq!(renewed, RenewOutcome::Renewed);
    // A retry has the grant that there is; nobody else gets one.
    assert_eq!(granted(store.acquire(&mine).await.unwrap()).token, token);
    let held = store.acquire(&request("mine", 1000)).await.unwrap();
    assert!(matches!(held, AcquireOutcome::Held(_)), "{held:?}");
    assert!(remaining(&store, "other").await.is_some());
    let release = store.release(&mine.key, mine.owner, token).await;
    assert_eq!(release.unwrap(), ReleaseOutcome::Released);
    assert!(remaining(&store, "mine").await.is_some());
}

/// Makes the first a replica of the second, which takes over with all its data.
fn take_over(former: &RedisServer, next: &RedisServer) {
    next.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    let port = next.address().port().to_string();
    let follow = ["REPLICAOF", "127.0.0.1", &port];
    former.command(&follow).unwrap();
    former.wait_until_linked().unwrap();
}

/// What the first confirmed last may not have reached it, although it runs since
/// before the grants were made.
#[tokio::test]
async fn it_begins_anew_when_a_server_takes_over_and_when_the_first_does_again() {
    let first = plain();
    let second = RedisServer::builder().replica_of(&first).start().unwrap();
    second.wait_until_linked().unwrap();
    let (on_first, on_second) = (opened(&first).await, opened(&second).await);
    wait_out(&on_first).await;
    take_over(&first, &second);
    wait_out(&on_second).await;
    take_over(&second, &first);
    wait_out(&on_first).await;
    assert_eq!(remaining(&on_first, "a").await, None);
}

/// The server gives its data a new id then, as after a failover.
#[tokio::test]
async fn it_begins_anew_with_the_first_replica() {
    let server = plain();
    let store = opened(&server).await;
    wait_out(&store).await;
    for begins in [true, false] {
        let replica = RedisServer::builder().replica_of(&server).start().unwrap();
        replica.wait_until_linked().unwrap();
        match begins {
            true => wait_out(&store).await,
            false => assert_eq!(remaining(&store, "a").await, None),
        }
    }
}

#[tokio::test]
async fn a_client_with_another_one_is_refused() {
    let server = plain();
    let store = opened(&server).await;
    wait_out(&store).await;
    let other = Ttl::new(MOST / 2).unwrap();
    let other = options(&server.url()).quarantine(other).open().await;
    for other in [other.unwrap(), self::store(&server).await] {
        let mine = request("mine", 500);
        let refused = other.acquire(&mine).await.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Refusing);
        let words = refused.to_string();
        assert!(
            words.contains("1500 ms") && words.contains("same"),
            "{words}"
        );
        // What does no harm is done.
        assert!(other.abandon(&mine.key, mine.owner).await.is_ok());
        assert!(other.inspect(&mine.key).await.is_ok());
    }
    assert_eq!(remaining(&store, "a").await, None);

    // All agree on another one: it begins.
    server.command(&["DEL", "leases:birth"]).unwrap();
    let other = options(&server.url()).quarantine(Ttl::new(MOST * 2).unwrap());
    let other = other.open().await.unwrap();
    assert!(remaining(&other, "b").await.is_some_and(|left| left > MOST));
    assert!(store.acquire(&request("c", 500)).await.is_err());
}

#[tokio::test]
async fn a_ttl_that_could_outlast_it_is_invalid() {
    let server = plain();
    let store = opened(&server).await;
    let long = request("a", 1501);
    let refused = store.acquire(&long).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::InvalidInput);
    let renew = renewal(&long, token(1));
    let refused = store.renew(&renew).await.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::InvalidInput);
    for outcome in store.renew_many(&[renew]).await {
        assert_eq!(outcome.unwrap_err().kind(), StoreErrorKind::InvalidInput);
    }
    assert_eq!(store.guarantees().ttl.max, MOST);
    assert_eq!(keys(&server), 0);
}
