//! The rounds, and how they are reported.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::join_all;
use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::redis::RedisServer;
use lease_core::{Key, Leases};
use rustix::time::{ClockId, clock_gettime};

use crate::contestants::{Contestant, TTL, connect};

/// Loopback, or with a millisecond of delay on it.
pub(crate) struct Place {
    url: String,
    proxy: Option<FaultProxy>,
}

impl Place {
    pub(crate) fn all(server: &RedisServer) -> Vec<Self> {
        let proxy = FaultProxy::start(server.address()).unwrap();
        proxy.delay(Duration::from_micros(500), Duration::from_micros(500));
        vec![
            Self {
                url: server.url().to_string(),
                proxy: None,
            },
            Self {
                url: server.url().through(proxy.address()).to_string(),
                proxy: Some(proxy),
            },
        ]
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.is_far() {
            true => "a millisecond away",
            false => "loopback",
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn is_far(&self) -> bool {
        self.proxy.is_some()
    }
}

pub(crate) struct Figure {
    name: String,
    /// Of each round.
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
}

pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Microseconds of this process, all threads.
fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

pub(crate) async fn lone(
    all: &[&dyn Contestant],
    renew: bool,
    rounds: usize,
    pairs: usize,
) -> Vec<Figure> {
    let mut figures = blank(all);
    for round in 0..=rounds {
        for (one, figure) in all.iter().zip(&mut figures) {
            let cpu = cpu_us();
            let mut times = Vec::with_capacity(pairs);
            for _ in 0..pairs {
                let start = Instant::now();
                one.pair("lone", renew).await;
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
            // The first round warms up.
            if round > 0 || rounds == 1 {
                figure.rates.push(median(&times));
                figure.cpu_us.push((cpu_us() - cpu) / pairs as f64);
            }
        }
    }
    figures
}

pub(crate) async fn crowd(
    all: &[&dyn Contestant],
    tasks: usize,
    rounds: usize,
    time: Duration,
) -> Vec<Figure> {
    let mut figures = blank(all);
    for round in 0..=rounds {
        for (one, figure) in all.iter().zip(&mut figures) {
            let (cpu, start) = (cpu_us(), Instant::now());
            let counts = join_all((0..tasks).map(|task| async move {
                let (key, mut count) = (format!("crowd/{task}"), 0_u32);
                while start.elapsed() < time {
                    one.pair(&key, false).await;
                    count += 1;
                }
                count
            }));
            let pairs = f64::from(counts.await.into_iter().sum::<u32>());
            if round > 0 || rounds == 1 {
                figure.rates.push(pairs / start.elapsed().as_secs_f64());
                figure.cpu_us.push((cpu_us() - cpu) / pairs);
            }
        }
    }
    figures
}

fn blank(all: &[&dyn Contestant]) -> Vec<Figure> {
    let blank = |one: &&dyn Contestant| Figure {
        name: one.name(),
        rates: Vec::new(),
        cpu_us: Vec::new(),
    };
    all.iter().map(blank).collect()
}

/// Medians over the rounds of each round's ratio to the floor.
fn ratios(figures: &[f64], floor: &[f64]) -> f64 {
    let ratios: Vec<_> = figures.iter().zip(floor).map(|(a, b)| a / b).collect();
    median(&ratios)
}

pub(crate) fn report_lone(figures: &[Figure], floor: usize) {
    for figure in figures {
        println!(
            "{:58} {:8.1} µs  x {:4.2}   {:6.1} µs CPU",
            figure.name,
            median(&figure.rates),
            ratios(&figure.rates, &figures[floor].rates),
            median(&figure.cpu_us),
        );
    }
}

pub(crate) fn report_crowd(figures: &[Figure], floor: usize) {
    for figure in figures {
        println!(
            "{:58} {:8.0} /s  x {:4.2}   {:6.2} µs CPU  x {:4.2}",
            figure.name,
            median(&figure.rates),
            ratios(&figure.rates, &figures[floor].rates),
            median(&figure.cpu_us),
            ratios(&figure.cpu_us, &figures[floor].cpu_us),
        );
    }
}

const IDLE: Duration = Duration::from_millis(10);

/// From the call of the release to the waiter's grant.
pub(crate) async fn hand_over(place: &Place, times: usize) {
    let mut raw = Vec::new();
    let mut ours = Vec::new();
    let url = place.url();
    let from = Leases::new(std::sync::Arc::new(
        crate::contestants::Ours::new(url).await.0,
    ));
    let to = Leases::new(std::sync::Arc::new(
        crate::contestants::Ours::new(url).await.0,
    ));
    let key = Key::new("handed/over").unwrap();
    let giver = connect(url, true).await;
    let taker = connect(url, true).await;
    let client = redis::Client::open(url).unwrap();
    let mut hints = client.get_async_pubsub().await.unwrap();
    hints.subscribe("raw").await.unwrap();
    let mut hints = hints.into_on_message();
    for _ in 0..times {
        raw.push(raw_hand_over(&giver, &taker, &mut hints).await);
        let lease = from.lease(&key).ttl(TTL).acquire().await.unwrap();
        let waiter = tokio::spawn({
            let waiting = to.lease(&key).ttl(TTL).acquire();
            async move { (waiting.await.unwrap(), Instant::now()) }
        });
        // Until it sleeps: nothing that it does shows that from outside.
        tokio::time::sleep(IDLE).await;
        let start = Instant::now();
        lease.release().await.unwrap();
        let (next, end) = waiter.await.unwrap();
        ours.push((end - start).as_secs_f64() * 1e6);
        next.release().await.unwrap();
    }
    let (raw, ours) = (median(&raw), median(&ours));
    println!("{:58} {raw:8.0} µs", "raw: DEL + PUBLISH, then SET NX");
    println!(
        "{:58} {ours:8.0} µs  x {:4.2}",
        "lease-redis, through Leases",
        ours / raw
    );
}

async fn raw_hand_over(
    giver: &redis::aio::MultiplexedConnection,
    taker: &redis::aio::MultiplexedConnection,
    hints: &mut (impl futures_util::Stream<Item = redis::Msg> + Unpin),
) -> f64 {
    let give = redis::Script::new("redis.call('DEL', KEYS[1]); redis.call('PUBLISH', 'raw', '')");
    let (mut giver, mut taker) = (giver.clone(), taker.clone());
    let mut set = redis::cmd("SET");
    set.arg("rawkey")
        .arg("x")
        .arg("NX")
        .arg("PX")
        .arg(TTL.as_millis() as u64);
    let _: Option<String> = set.query_async(&mut giver).await.unwrap();
    // As long as ours is idle before: processors and schedulers take their time
    // to wake up.
    tokio::time::sleep(IDLE).await;
    let start = Instant::now();
    let call = give.key("rawkey");
    let (given, end) = futures_util::future::join(call.invoke_async::<()>(&mut giver), async {
        hints.next().await.unwrap();
        let took: Option<String> = set.query_async(&mut taker).await.unwrap();
        assert!(took.is_some());
        Instant::now()
    })
    .await;
    given.unwrap();
    (end - start).as_secs_f64() * 1e6
}
