//! Which contests there are, and where they take place.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lease_conformance::bench::{Drained, crowd_drain, lone_drain, report_crowd, report_lone};
use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::nats::NatsServer;
use lease_conformance::servers::postgres::PostgresServer;
use lease_conformance::servers::redis::RedisServer;
use lease_queue::QueueStore;
use lease_queue::nats::NatsOptions;
use lease_queue::postgres::PostgresQueues;
use lease_queue::redis::RedisQueues;

use crate::{nats, ours, postgres, redis, waiting};

type All = Vec<Box<dyn Drained>>;
type Opens = fn(String) -> BoxFuture<'static, All>;

/// Others who take part, opened by a URL.
pub(crate) struct Peers {
    pub(crate) redis: Opens,
    pub(crate) postgres: Opens,
}

impl Peers {
    #[allow(dead_code, reason = "the peers' own bench has some")]
    pub(crate) fn none() -> Self {
        let none: Opens = |_| Box::pin(async { Vec::new() });
        Self {
            redis: none,
            postgres: none,
        }
    }
}

async fn redis_queues(url: &str) -> Arc<dyn QueueStore> {
    let options = RedisQueues::options(url).unwrap();
    Arc::new(RedisQueues::open(options).await.unwrap())
}

async fn postgres_queues(url: &str) -> Arc<dyn QueueStore> {
    let options = PostgresQueues::options(url).unwrap();
    Arc::new(PostgresQueues::open(options).await.unwrap())
}

async fn nats_queues(url: &str) -> Arc<dyn QueueStore> {
    let options = NatsOptions::from_url(url).unwrap();
    Arc::new(options.open().await.unwrap())
}

/// Ours on one store.
fn ours_on(name: &'static str, store: &Arc<dyn QueueStore>) -> All {
    let store = || Arc::clone(store);
    let mut all: All = Vec::new();
    if store().capabilities().items {
        all.push(Box::new(ours::Store::new(name, store())));
        all.push(Box::new(ours::Handle::new(name, store())));
        all.push(Box::new(ours::Worker::new(name, store())));
    }
    all.push(Box::new(ours::Keyed::new(name, store())));
    all
}

pub(crate) fn main(peers: Peers) {
    // `cargo test --benches` only checks that it starts.
    let quick = !std::env::args().any(|arg| arg == "--bench");
    let named: Vec<_> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let runs = |name: &str| named.is_empty() || named.iter().any(|one| one == name);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let redis_server = RedisServer::builder().start().unwrap();
        // As it comes, fsync and all.
        let postgres_server = PostgresServer::builder()
            .config("max_connections", "300")
            .start()
            .unwrap();
        let nats_server = NatsServer::builder().start().unwrap();
        let near = [
            redis_server.url().to_string(),
            postgres_server.url().to_string(),
            nats_server.url().to_string(),
        ];
        let address = [
            redis_server.address(),
            postgres_server.address(),
            nats_server.address(),
        ];
        let proxies = address.map(|at| Arc::new(FaultProxy::start(at).unwrap()));
        let far = [
            redis_server.url().through(proxies[0].address()).to_string(),
            postgres_server
                .url()
                .through(proxies[1].address())
                .to_string(),
            nats_server.url().through(proxies[2].address()).to_string(),
        ];
        let delays = |trip: Duration| {
            proxies
                .iter()
                .for_each(|proxy| proxy.delay(trip / 2, trip / 2));
        };
        delays(Duration::from_millis(1));
        for (place, urls) in [("loopback", &near), ("a millisecond away", &far)] {
            let items = if place == "loopback" { 300 } else { 60 };
            if runs("redis") {
                println!("\n# Redis, {place} (target 7: >= 0.8 of the floor)\n");
                let mut all: All = vec![
                    Box::new(redis::Bare::new(&urls[0], false).await),
                    Box::new(redis::Bare::new(&urls[0], true).await),
                ];
                all.extend(ours_on("Redis", &redis_queues(&urls[0]).await));
                all.extend((peers.redis)(urls[0].clone()).await);
                contest(&all, quick, items, || {}).await;
            }
            if runs("postgres") {
                println!("\n# Postgres, {place} (target 7: >= 1.5 of pgmq and apalis)\n");
                let mut all: All = vec![Box::new(postgres::Bare::new(&urls[1], 10).await)];
                all.extend(ours_on("Postgres", &postgres_queues(&urls[1]).await));
                all.extend((peers.postgres)(urls[1].clone()).await);
                // Nobody inherits what others have left to clean up.
                let between = || drop(postgres_server.sql("VACUUM ANALYZE").unwrap());
                contest(&all, quick, 60, between).await;
            }
            if runs("nats") {
                println!("\n# NATS, {place} (target 7: >= 0.4 of the floor)\n");
                let mut all: All = vec![Box::new(nats::Fetch::new(&urls[2]).await)];
                all.extend(ours_on("NATS", &nats_queues(&urls[2]).await));
                contest(&all, quick, items, || {}).await;
            }
        }
        if !runs("waiting") {
            return;
        }
        for ms in [1, 20] {
            let trip = Duration::from_millis(ms);
            delays(trip);
            for (name, proxy, stores) in [
                (
                    "Redis",
                    &proxies[0],
                    [redis_queues(&far[0]).await, redis_queues(&far[0]).await],
                ),
                (
                    "Postgres",
                    &proxies[1],
                    [
                        postgres_queues(&far[1]).await,
                        postgres_queues(&far[1]).await,
                    ],
                ),
                (
                    "NATS",
                    &proxies[2],
                    [nats_queues(&far[2]).await, nats_queues(&far[2]).await],
                ),
            ] {
                let [from, to] = &stores;
                if !from.capabilities().items {
                    continue;
                }
                println!("\n# a claim that waits, {name} {ms} ms away (target: <= 3 round trips)");
                waiting::run(from, to, proxy, trip, if quick { 1 } else { 21 }).await;
            }
        }
    });
}

/// `items` by one task in each round.
async fn contest(all: &All, quick: bool, items: usize, between: impl Fn()) {
    let all: Vec<&dyn Drained> = all.iter().map(|one| &**one).collect();
    let (rounds, items) = if quick { (1, 2) } else { (7, items) };
    println!("one task, p50 of claim + complete");
    let figures = lone_drain(&all, rounds, items, &between).await;
    print!("{}", report_lone(&figures, 0));
    let (rounds, seconds) = if quick { (1, 0.01) } else { (5, 0.5) };
    println!("\n64 tasks, claim + complete");
    let figures = crowd_drain(&all, 64, rounds, seconds, &between).await;
    print!("{}", report_crowd(&figures, 0));
}
