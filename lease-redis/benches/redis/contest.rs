//! Where it takes place, and the hand-over.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lease_conformance::bench::median;
use lease_conformance::proxy::FaultProxy;
use lease_conformance::servers::redis::RedisServer;
use lease_core::{Key, Leases};

use crate::contestants::{TTL, connect};

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
