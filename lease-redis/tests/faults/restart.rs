//! A server that is killed and comes back with all, some or none of its data.

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::servers::redis::{Persistence, RedisServer};
use lease_core::Ttl;
use rand::RngExt;

use crate::harm::harm;
use crate::holder::Seen;
use crate::load::Load;
use crate::support::options;

const TTLS_MS: std::ops::RangeInclusive<u64> = 300..=1000;

/// What of its data a server comes back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Back {
    /// What its persistence has kept.
    Kept,
    Empty,
}

async fn with_kills(persistence: Persistence, back: Back, quarantine: bool) -> Seen {
    let server = RedisServer::builder().persistence(persistence);
    let server = Arc::new(server.start().unwrap());
    let option = || {
        let option = options(&server.url()).durable(persistence == Persistence::AofAlways);
        match quarantine {
            true => option.quarantine(Ttl::new(Duration::from_millis(*TTLS_MS.end())).unwrap()),
            false => option,
        }
    };
    let survives = option().guarantees().exclusion_survives;
    let exclusive = match back {
        Back::Kept => survives.restart,
        Back::Empty => survives.data_loss,
    };
    assert_eq!(
        exclusive,
        quarantine || (back == Back::Kept && persistence == Persistence::AofAlways)
    );
    let load = Load::start(TTLS_MS, (0..4).map(|_| option()).collect()).await;
    let (mut random, mut kills) = (load.random(), 0);
    while load.goes_on() {
        // A quarantine needs time for grants in between.
        let more = if quarantine { *TTLS_MS.end() } else { 0 };
        let up = Duration::from_millis(more + random.random_range(200..900));
        tokio::time::sleep(up).await;
        if persistence == Persistence::Rdb && random.random_bool(0.5) {
            // So that an old snapshot is there to come back with.
            harm(&server, RedisServer::save).await;
            tokio::time::sleep(Duration::from_millis(random.random_range(0..200))).await;
        }
        harm(&server, RedisServer::kill).await;
        kills += 1;
        tokio::time::sleep(Duration::from_millis(random.random_range(0..300))).await;
        match back {
            Back::Kept => harm(&server, RedisServer::start).await,
            Back::Empty => harm(&server, RedisServer::restart_empty).await,
        }
    }
    let seen = load.end(exclusive).await;
    // That none of them was noticed is well, too: acquiring goes on meanwhile.
    assert!(kills > 0, "{seen:?}");
    assert_eq!(seen.refused > 0, quarantine, "{seen:?}");
    seen
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_always_synced_keeps_exclusion() {
    with_kills(Persistence::AofAlways, Back::Kept, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_every_second_keeps_the_order_of_tokens() {
    with_kills(Persistence::AofEverysec, Back::Kept, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_every_second_keeps_exclusion_with_a_quarantine() {
    with_kills(Persistence::AofEverysec, Back::Kept, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_keep_the_order_of_tokens() {
    with_kills(Persistence::Rdb, Back::Kept, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_keep_exclusion_with_a_quarantine() {
    with_kills(Persistence::Rdb, Back::Kept, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_start_keeps_the_order_of_tokens() {
    with_kills(Persistence::None, Back::Empty, false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_start_keeps_exclusion_with_a_quarantine() {
    with_kills(Persistence::AofAlways, Back::Empty, true).await;
}
