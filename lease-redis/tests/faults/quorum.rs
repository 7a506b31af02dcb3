//! A quorum whose nodes are killed, emptied, paused and cut off from some clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lease_conformance::servers::redis::{NodesWay, RedisNodes, RedisServer};
use lease_core::{LeaseBackend, Ttl};
use lease_redis::RedlockOptions;
use rand::RngExt;
use rand::rngs::StdRng;

use crate::load::Load;

const CLIENTS: usize = 4;
/// As long as the longest of these TTLs, and as tokens may be ahead of the clocks.
const QUARANTINE: Duration = Duration::from_secs(3);
/// What has come back has its part in each lease again after that.
const SETTLED: Duration = Duration::from_secs(1);
const TTLS_MS: std::ops::RangeInclusive<u64> = 300..=1000;

fn options(hosts: &str) -> RedlockOptions {
    let options = RedlockOptions::from_url(&format!("redlock://{hosts}")).unwrap();
    options.quarantine(Ttl::new(QUARANTINE).unwrap())
}

/// Clients that come each by a way of their own.
async fn load(nodes: &RedisNodes) -> (Load, Vec<NodesWay>) {
    assert!(options(&nodes.hosts()).init().await.unwrap().is_done());
    let ways: Vec<_> = (0..CLIENTS).map(|_| nodes.way().unwrap()).collect();
    let mut stores: Vec<Arc<dyn LeaseBackend>> = Vec::new();
    for way in &ways {
        stores.push(Arc::new(options(&way.hosts()).open().await.unwrap()));
    }
    (Load::start_on(TTLS_MS, stores), ways)
}

/// Something befalls these nodes, for up to this long; whether it may take their
/// data. Gives whether it did.
async fn harm(
    random: &mut StdRng,
    nodes: &RedisNodes,
    ways: &[NodesWay],
    which: &[usize],
    (most_ms, empties): (u64, bool),
) -> bool {
    let time = Duration::from_millis(random.random_range(20..most_ms));
    let servers: Vec<&RedisServer> = which.iter().map(|i| &nodes.servers()[*i]).collect();
    let what = random.random_range(u32::from(!empties)..4);
    match what {
        0 => {
            servers.iter().for_each(|server| server.kill().unwrap());
            tokio::time::sleep(time).await;
            servers
                .iter()
                .for_each(|server| server.restart_empty().unwrap());
        }
        1 => {
            servers.iter().for_each(|server| server.pause().unwrap());
            tokio::time::sleep(time).await;
            servers.iter().for_each(|server| server.resume().unwrap());
        }
        2 => {
            // Each client loses other nodes.
            for way in ways {
                for _ in which {
                    way.proxies()[random.random_range(0..way.proxies().len())].black_hole();
                }
            }
            tokio::time::sleep(time).await;
            for proxy in ways.iter().flat_map(NodesWay::proxies) {
                proxy.heal().unwrap();
            }
        }
        _ => {
            for way in ways {
                which.iter().for_each(|i| way.proxies()[*i].cut());
            }
        }
    }
    what == 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_minority_that_is_killed_emptied_paused_or_cut_off_makes_no_two_holders() {
    let nodes = RedisNodes::start(5, &RedisServer::builder()).unwrap();
    let (load, ways) = load(&nodes).await;
    let mut random = load.random();
    let mut which = [0, 1];
    let mut emptied = None::<Instant>;
    while load.goes_on() {
        // Others when these count again: until then they are two that are lost.
        if emptied.is_none_or(|when| when.elapsed() > QUARANTINE + SETTLED) {
            let first = random.random_range(0..5);
            which = [first, (first + 1) % 5];
        }
        if harm(&mut random, &nodes, &ways, &which, (300, true)).await {
            emptied = Some(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(50..400))).await;
    }
    load.end(true).await;
}

/// A holder that believed in its lease past its deadline fails the run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_away_makes_no_two_holders_and_each_hears_of_it() {
    let nodes = RedisNodes::start(3, &RedisServer::builder()).unwrap();
    let (load, ways) = load(&nodes).await;
    let mut random = load.random();
    let mut first = 0;
    while load.goes_on() {
        let which = [first % 3, (first + 1) % 3];
        first += 1;
        harm(&mut random, &nodes, &ways, &which, (1500, false)).await;
        tokio::time::sleep(Duration::from_millis(random.random_range(100..500))).await;
    }
    load.end(true).await;
}
