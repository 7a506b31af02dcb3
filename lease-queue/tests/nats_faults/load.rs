//! Workers that go on while servers are killed and stand still.
//!
//! Longer with `LEASES_NATS_FAULT_SECONDS`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lease_conformance::servers::nats::NatsServer;
use lease_conformance::servers::nats::cluster::{NODES, NatsCluster};
use lease_core::Leases;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::worker::{Shared, Worker};

const WORKERS: u64 = 6;

fn seconds(slice: u64) -> Duration {
    let told = std::env::var("LEASES_NATS_FAULT_SECONDS").ok();
    Duration::from_secs(told.and_then(|s| s.parse().ok()).unwrap_or(slice))
}

/// Lets workers, each with a client of its own, go on until `harm` has returned.
async fn run(url: &str, harm: impl FnOnce(&mut StdRng) + Send + 'static) {
    let seed = rand::random::<u64>();
    println!("seed {seed}");
    let (shared, stop) = (Arc::new(Shared::new()), Arc::new(AtomicBool::new(false)));
    let mut tasks = Vec::new();
    for number in 0..WORKERS {
        let worker = Worker {
            leases: Leases::new(crate::client(url).await),
            shared: Arc::clone(&shared),
            random: StdRng::seed_from_u64(seed.wrapping_add(number)),
        };
        tasks.push(tokio::spawn(worker.work(Arc::clone(&stop))));
    }
    let mut random = StdRng::seed_from_u64(seed.wrapping_sub(1));
    tokio::task::spawn_blocking(move || harm(&mut random))
        .await
        .unwrap();
    let before = shared.holdings.all().len();
    let give_up = Instant::now() + Duration::from_secs(60);
    while shared.holdings.all().len() < before + 10 {
        assert!(
            Instant::now() < give_up,
            "no grant after all servers are back"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    println!("{} grants", shared.holdings.all().len());
    shared.holdings.are_exclusive().unwrap();
}

fn between(random: &mut StdRng, ms: std::ops::Range<u64>) {
    std::thread::sleep(Duration::from_millis(random.random_range(ms)));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_is_killed_again_and_again_and_stands_still() {
    let server = Arc::new(NatsServer::builder().start().unwrap());
    let url = server.url().to_string();
    let harmed = Arc::clone(&server);
    run(&url, move |random| {
        let end = Instant::now() + seconds(5);
        while Instant::now() < end {
            between(random, 100..700);
            if random.random_range(0..3) == 0 {
                harmed.pause().unwrap();
                between(random, 10..900);
                harmed.resume().unwrap();
            } else {
                harmed.kill().unwrap();
                harmed.start().unwrap();
            }
        }
    })
    .await;
}

/// One at a time, more often than not the one that leads the stream.
#[tokio::test(flavor = "multi_thread")]
async fn three_servers_lose_one_after_the_other() {
    let cluster = Arc::new(NatsCluster::start_new().unwrap());
    let url = cluster.url().to_string();
    let harmed = Arc::clone(&cluster);
    run(&url, move |random| {
        let end = Instant::now() + seconds(8);
        while Instant::now() < end {
            between(random, 200..1000);
            let leader = harmed.stream_leader("leases-owners").unwrap();
            let node = match random.random_range(0..3) {
                0 => random.random_range(0..NODES),
                _ => leader,
            };
            if random.random_range(0..2) == 0 {
                harmed.node(node).pause().unwrap();
                between(random, 100..3000);
                harmed.node(node).resume().unwrap();
            } else {
                harmed.node(node).kill().unwrap();
                between(random, 0..2000);
            }
            harmed.start().unwrap();
        }
    })
    .await;
}
