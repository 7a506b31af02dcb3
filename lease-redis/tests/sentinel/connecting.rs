//! Finding the primary, with sentinels that are away, silent or strangers.

use std::time::{Duration, Instant};

use lease_conformance::servers::redis::sentinel::SentinelTrio;
use lease_conformance::servers::redis::{RedisServer, RedisUrl};
use lease_core::{LeaseBackend, StoreError, StoreErrorKind};
use lease_redis::RedisOptions;

use crate::support::*;
use crate::trio::{act, options, pair, start, store, until};

/// Far less than any time limit that may hold an opening up, and much for a busy
/// machine.
const QUICK: Duration = Duration::from_secs(2);

async fn refused(options: RedisOptions) -> StoreError {
    match options.open().await {
        Err(error) => error,
        Ok(_) => panic!("it opens"),
    }
}

fn by(url: &RedisUrl) -> RedisOptions {
    options_of(&url.to_string())
}

fn options_of(url: &str) -> RedisOptions {
    RedisOptions::from_url(url).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_is_dead_or_silent_holds_nothing_up() {
    let trio = pair().await;
    let [first, second, third] = trio.sentinels() else {
        panic!("three sentinels");
    };
    let open = async |who: &str| {
        let asked = Instant::now();
        let store = store(&trio).await;
        let took = asked.elapsed();
        println!("{who}: {took:?}");
        assert!(took < QUICK, "{who}: {took:?}");
        granted(store.acquire(&request(who, 60_000)).await.unwrap());
        store
    };
    let before = open("all").await;
    first.pause().unwrap();
    open("the first is silent").await;
    second.kill().unwrap();
    open("and the second is dead").await;
    third.kill().unwrap();

    // Who is connected goes on; nobody else can come.
    granted(before.acquire(&request("alone", 60_000)).await.unwrap());
    let limit = Duration::from_millis(500);
    let asked = Instant::now();
    let error = refused(options(&trio).connect_timeout(limit)).await;
    let took = asked.elapsed();
    assert!(took >= limit / 2 && took < limit + QUICK, "{took:?}");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("none of 3 sentinels"), "{error}");

    first.resume().unwrap();
    open("the first is back").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_one_out_is_told_and_no_secret_is() {
    let trio = SentinelTrio::builder()
        .replicas(0)
        .nodes(RedisServer::builder().user("app on >hunter2 ~* &* +@all"))
        .sentinel_user("asker on >hunter3 -@all +sentinel|get-master-addr-by-name +sentinel|master")
        .sentinel_user("blind on >hunter4 -@all +sentinel|get-master-addr-by-name");
    let trio = start(trio).await;
    let url = || trio.url().user("app", "hunter2");
    let good = by(&url().sentinel_user("asker", "hunter3"));
    good.open().await.unwrap();
    let as_text = url().sentinel_user("asker", "hunter3").to_string();
    for (what, options, words) in [
        ("no login", by(&url()), "sentinel_password="),
        (
            "a wrong password",
            by(&url().sentinel_user("asker", "hunter5")),
            "sentinel_password=",
        ),
        (
            "too few rights",
            by(&url().sentinel_user("blind", "hunter4")),
            "+sentinel|master",
        ),
        (
            "a wrong name",
            options_of(&as_text.replace("/leases?", "/another?")),
            "SENTINEL MASTERS",
        ),
        (
            "a wrong login of the server",
            by(&trio
                .url()
                .user("app", "hunter6")
                .sentinel_user("asker", "hunter3")),
            "the primary 127.0.0.1:",
        ),
        (
            "servers for sentinels",
            options_of(&format!(
                "redis+sentinel://{}/leases",
                trio.nodes()[0].address()
            )),
            "sentinel",
        ),
    ] {
        let shown = format!("{options:?}");
        let error = refused(options).await;
        let said = format!("{error} {error:?}");
        println!("{what}: {error}");
        assert_eq!(error.kind(), StoreErrorKind::Refusing, "{what}: {error}");
        assert!(said.contains(words), "{what}: {said}");
        assert!(!said.contains("hunter"), "{what}: {said}");
        assert!(!shown.contains("hunter"), "{what}: {shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_a_replica_by_now_is_not_used() {
    let trio = pair().await;
    // By hand, and the sentinels do not see it: they are all paused.
    let one = trio.nodes()[1].address();
    for sentinel in &trio.sentinels()[1..] {
        sentinel.kill().unwrap();
    }
    let demoted = trio.nodes()[0].server();
    let port = one.port().to_string();
    demoted.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let error = refused(options(&trio)).await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("it is a replica"), "{error}");
    demoted.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    store(&trio).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_dropped_leaves_no_connection_to_a_sentinel() {
    let trio = pair().await;
    let sentinel = &trio.sentinels()[0];
    let listening = || {
        let list = sentinel.command(&["CLIENT", "LIST", "TYPE", "PUBSUB"]);
        let list = list.unwrap();
        // The other sentinels subscribe to nothing here.
        list.text().unwrap_or_default().lines().count()
    };
    let one = store(&trio).await;
    let other = one.clone();
    granted(other.acquire(&request("a", 60_000)).await.unwrap());
    until("one connection listens", || listening() == 1).await;
    drop(one);
    granted(other.acquire(&request("b", 60_000)).await.unwrap());
    assert_eq!(listening(), 1);
    drop(other);
    until("none listens", || listening() == 0).await;
    act(&trio, SentinelTrio::settle).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_servers_may_speak_tls() {
    let trio = SentinelTrio::builder()
        .replicas(1)
        .nodes(RedisServer::builder().tls());
    let trio = start(trio).await;
    let authority = trio.nodes()[0].server().authority_pem().unwrap();
    let url = format!("{}?ca={}", trio.url(), authority.display());
    let store = options_of(&url).open().await.unwrap();
    granted(store.acquire(&request("a", 60_000)).await.unwrap());
    crate::trio::failover(&trio).await;
    let request = request("b", 60_000);
    granted(persist(|| store.acquire(&request)).await);

    let error = refused(by(&trio.url())).await;
    assert_eq!(error.kind(), StoreErrorKind::Refusing, "{error}");
    assert!(error.message().contains("?ca="), "{error}");
}
