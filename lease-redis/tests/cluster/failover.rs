//! A replica takes over, in agreement and by vote.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use lease_conformance::servers::redis::cluster::{Failover, RedisCluster};
use lease_core::LeaseBackend;

use crate::load::{KEYS, Load};
use crate::support::{PATIENCE, granted, persist, request};
use crate::{harm, holder, options, record, store};

async fn loaded(cluster: &RedisCluster, ttls_ms: std::ops::RangeInclusive<u64>) -> Load {
    let all = (0..4).map(|_| options(&cluster.url()));
    Load::start(ttls_ms, all.collect()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agreed_failovers_make_no_two_holders() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let load = loaded(&cluster, 500..=2000).await;
    let mut number = 0;
    while load.goes_on() {
        let name = record(holder::key(number % KEYS).as_str());
        harm(&cluster, move |cluster| {
            cluster.failover(&name, Failover::Agreed)?;
            cluster.until_settled()
        })
        .await;
        number += 1;
    }
    let seen = load.end(true).await;
    println!("{number} failovers: {seen:?}");
    assert!(number > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_primary_is_followed_by_its_replica_and_tokens_rise() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let load = loaded(&cluster, 500..=2000).await;
    let name = record(holder::key(0).as_str());
    let (dead, slot) = harm(&cluster, move |cluster| {
        let dead = cluster.owner_of(&name)?;
        cluster.node(dead).kill()?;
        Ok((dead, cluster.slot_of(&name)?))
    })
    .await;
    while load.goes_on() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    harm(&cluster, move |cluster| {
        cluster.until_other_owner(slot, dead)?;
        cluster.node(dead).start()?;
        cluster.until_settled()
    })
    .await;
    // What had not reached the replica is lost: the guarantees claim no more.
    load.end(false).await;
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_by_tls_is_followed_as_well() {
    let cluster = Arc::new(RedisCluster::builder().tls().start().unwrap());
    let client = store(&cluster).await;
    for round in 0..3 {
        for number in 0..20 {
            let asked = request(&format!("k{number}"), 10_000);
            let grant = granted(persist(|| client.acquire(&asked)).await);
            let mut hints = client.watch(&asked.key).await.unwrap();
            let release = client.release(&asked.key, asked.owner, grant.token);
            release.await.unwrap();
            let heard = tokio::time::timeout(PATIENCE, hints.next()).await;
            assert!(heard.is_ok(), "round {round}");
        }
        harm(&cluster, |cluster| {
            cluster.failover(&record("k0"), Failover::Agreed)?;
            cluster.until_settled()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_granted_soon_after_its_replica_took_over() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let client = store(&cluster).await;
    let name = record("a");
    let first = request("a", 300);
    granted(client.acquire(&first).await.unwrap());
    let (dead, slot) = harm(&cluster, move |cluster| {
        let dead = cluster.owner_of(&name)?;
        cluster.node(dead).kill()?;
        Ok((dead, cluster.slot_of(&name)?))
    })
    .await;
    harm(&cluster, move |cluster| {
        cluster.until_other_owner(slot, dead)
    })
    .await;
    let began = Instant::now();
    let next = request("a", 1000);
    granted(persist(|| client.acquire(&next)).await);
    let took = began.elapsed();
    println!("granted {took:?} after the replica was the primary");
    assert!(took < Duration::from_secs(5), "{took:?}");
}
