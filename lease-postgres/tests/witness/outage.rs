//! Outages that last longer than the grace.

use std::time::{Duration, Instant};

use lease_conformance::proxy::FaultProxy;
use lease_core::{Clock as _, SystemClock};

use crate::support::{GRACE, LONG, PATIENCE, hold, server, start, witnessed};

/// The holder is cut off for good: renewals, pings and new connections alike.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_is_told_before_another_is_granted() {
    let proxy = FaultProxy::start(server().address()).unwrap();
    let url = server().url();
    let holder = witnessed(&url.clone().through(proxy.address()).to_string(), "outage").await;
    let other = witnessed(&url.to_string(), "outage").await;
    let lease = hold(&holder, "k").await;
    let other_waits = other.lease("k").ttl(LONG).wait(PATIENCE);
    let waiting = tokio::spawn(async move {
        let lease = other_waits.acquire().await.unwrap();
        (lease, SystemClock::new().now())
    });
    tokio::time::sleep(GRACE * 2).await;
    lease.check().unwrap();
    let begun = Instant::now();
    proxy.refuse();
    proxy.cut();
    let lost = lease.lost().await;
    let told = begun.elapsed();
    assert!(
        told <= GRACE + Duration::from_secs(1),
        "told after {told:?}"
    );
    let (next, granted) = waiting.await.unwrap();
    assert!(lease.deadline() <= granted, "{lost}: two believe");
    assert!(next.token() > lease.token());
    assert!(begun.elapsed() < PATIENCE);
}

/// It stands still: nobody is told of anything, and the sessions stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stands_still_for_longer_than_the_grace_loses_the_leases() {
    let server = start().unwrap();
    let url = server.url().to_string();
    let holder = witnessed(&url, "still").await;
    let lease = hold(&holder, "k").await;
    tokio::time::sleep(GRACE).await;
    lease.check().unwrap();
    tokio::task::block_in_place(|| server.pause()).unwrap();
    let begun = Instant::now();
    lease.lost().await;
    assert!(begun.elapsed() <= GRACE + Duration::from_secs(1));
    tokio::task::block_in_place(|| server.resume()).unwrap();
    let other = witnessed(&url, "still").await;
    let next = other.lease("k").ttl(LONG).wait(PATIENCE).acquire().await;
    assert!(next.unwrap().token() > lease.token());
}
