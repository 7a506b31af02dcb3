//! A primary that restarts again and again, before it is missed.

use std::time::{Duration, Instant};

use lease_conformance::servers::redis::sentinel::SentinelTrio;
use lease_conformance::servers::redis::{Persistence, RedisServer};
use lease_core::{AcquireOutcome, LeaseBackend};

use crate::support::*;
use crate::trio::{start, store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_holders_key_is_free_in_time_whatever_restarts_meanwhile() {
    const TTL: Duration = Duration::from_secs(2);
    let trio = SentinelTrio::builder()
        .replicas(1)
        .down_after(Duration::from_secs(20))
        .nodes(RedisServer::builder().persistence(Persistence::AofAlways));
    let trio = start(trio).await;
    let (dead, client) = (store(&trio).await, store(&trio).await);
    let held = request("a", 2000);
    let granted_at = Instant::now();
    granted(dead.acquire(&held).await.unwrap());
    drop(dead);
    let mut restarts = 0;
    loop {
        let again = granted_at + TTL * (restarts + 1) / 2;
        tokio::time::sleep_until(again.into()).await;
        let server = trio.nodes()[0].server();
        server.kill().unwrap();
        server.start().unwrap();
        restarts += 1;
        let mine = request("a", 2000);
        match persist(|| client.acquire(&mine)).await {
            AcquireOutcome::Granted(_) => break,
            AcquireOutcome::Held(_) => assert!(granted_at.elapsed() < TTL * 2),
            other => panic!("{other:?}"),
        }
    }
    let took = granted_at.elapsed();
    assert!(took >= TTL && restarts >= 2, "{took:?}, {restarts}");
}
