//! A network that cuts, loses and swallows.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::proxy::{FaultProxy, On, Then};
use lease_conformance::servers::redis::RedisServer;
use lease_core::{Clock, LeaseBackend, Leases, SystemClock};
use rand::RngExt;

use crate::load::Load;
use crate::support::{PATIENCE, key, options, persist, plain};

/// Two clients of three come through the proxy.
async fn mixed(
    server: &RedisServer,
    proxy: &FaultProxy,
    ttls_ms: std::ops::RangeInclusive<u64>,
) -> Load {
    let all = (0..6).map(|number| {
        let url = server.url();
        options(&if number % 3 == 0 {
            url
        } else {
            url.through(proxy.address())
        })
    });
    Load::start(ttls_ms, all.collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_again_and_again_make_no_two_holders() {
    let server = plain();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let load = mixed(&server, &proxy, 300..=1500).await;
    let mut random = load.random();
    while load.goes_on() {
        match random.random_range(0..6) {
            0 => proxy.cut(),
            1 => drop(proxy.lose_reply(Then::Cut, On::Any)),
            2 => drop(proxy.lose_request(Then::Cut, On::Any)),
            3 => drop(proxy.lose_reply(Then::Hang, On::Any)),
            4 => drop(proxy.cut_reply_after(random.random_range(1..200), On::Any)),
            _ => drop(proxy.cut_request_after(random.random_range(1..200), On::Any)),
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(5..80))).await;
    }
    proxy.heal().unwrap();
    load.end(true).await;
    // Each of the four clients connected anew, and more than once.
    let connections = proxy.traffic().connections;
    assert!(connections > 8, "{connections} connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn black_holes_make_no_two_holders() {
    let server = plain();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let load = mixed(&server, &proxy, 300..=1000).await;
    let mut random = load.random();
    while load.goes_on() {
        proxy.black_hole();
        tokio::time::sleep(Duration::from_millis(random.random_range(100..1500))).await;
        proxy.heal().unwrap();
        tokio::time::sleep(Duration::from_millis(random.random_range(300..900))).await;
    }
    load.end(true).await;
    // Each of the four clients connected anew, and more than once.
    let connections = proxy.traffic().connections;
    assert!(connections > 8, "{connections} connections");
}

/// Requests that hung are given up by their own limits; what counts is that the
/// next ones go out on a connection that works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_black_hole_the_store_answers_again_at_once() {
    let (server, clock) = (plain(), SystemClock::new());
    let proxy = FaultProxy::start(server.address()).unwrap();
    let through = options(&server.url().through(proxy.address()));
    let store = through.open().await.unwrap();
    let leases = Leases::builder(Arc::new(store.clone()))
        .clock(Arc::new(clock))
        .build();
    let name = key("a");
    for round in 0..4_u64 {
        // The way swallows everything, as long as the lease lives and longer.
        let lease = leases
            .lease("a")
            .ttl(Duration::from_millis(600))
            .wait(PATIENCE);
        let lease = lease.acquire().await.unwrap();
        proxy.black_hole();
        tokio::time::timeout(PATIENCE, lease.lost()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300 * round)).await;
        drop(lease);
        proxy.heal().unwrap();
        let healed = clock.now();
        persist(|| store.inspect(&name)).await;
        let recovered = clock.now().since(healed);
        println!("round {round}: answered {recovered:?} after the way was open again");
        assert!(recovered < Duration::from_secs(3), "{recovered:?}");
    }
    leases.shutdown(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_outlives_a_black_hole_that_is_shorter_than_it_is() {
    let server = plain();
    let proxy = FaultProxy::start(server.address()).unwrap();
    let through = options(&server.url().through(proxy.address()));
    let leases = Leases::new(Arc::new(through.open().await.unwrap()));
    let mut outlived = 0;
    for _ in 0..3 {
        let ttl = Duration::from_secs(3);
        let lease = leases.lease("a").ttl(ttl).wait(PATIENCE).acquire();
        let lease = lease.await.unwrap();
        // Over the first renewal, which starts at a third.
        tokio::time::sleep(ttl / 4).await;
        proxy.black_hole();
        tokio::time::sleep(ttl / 4).await;
        proxy.heal().unwrap();
        tokio::time::sleep(ttl).await;
        lease.check().unwrap();
        outlived += 1;
        lease.release().await.unwrap();
    }
    assert_eq!(outlived, 3);
}
