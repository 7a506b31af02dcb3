//! Who waits is woken, whichever node has the key.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lease_conformance::servers::redis::cluster::{Failover, RedisCluster};
use lease_core::{LeaseBackend, Leases};
use lease_redis::RedisStore;

use crate::support::{PATIENCE, granted, key, persist, request};
use crate::{harm, record, store};

/// Far longer than a test waits: only a wake-up ends it in time.
const LONG: Duration = Duration::from_secs(600);

async fn hint(hints: &mut BoxStream<'static, ()>) {
    let hint = tokio::time::timeout(PATIENCE, hints.next()).await;
    hint.expect("a hint").expect("no end");
}

/// Takes hints until a release is heard of; one that was lost is sent again.
async fn until_heard(client: &RedisStore, hints: &mut BoxStream<'static, ()>) {
    let began = Instant::now();
    loop {
        let asked = request("a", 60_000);
        let grant = granted(persist(|| client.acquire(&asked)).await);
        let release = client.release(&asked.key, asked.owner, grant.token);
        release.await.unwrap();
        let heard = tokio::time::timeout(Duration::from_millis(500), hints.next()).await;
        if heard.is_ok() {
            return;
        }
        assert!(began.elapsed() < PATIENCE);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_by_another_client_wakes_a_waiter_before_and_after_a_failover() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let holder = Leases::new(Arc::new(store(&cluster).await));
    let waiter = Leases::new(Arc::new(store(&cluster).await));
    for round in 0..3 {
        let lease = holder.lease("a").ttl(LONG).wait(PATIENCE).acquire().await;
        let lease = lease.unwrap();
        let waiting = tokio::spawn({
            let waiter = waiter.clone();
            async move { waiter.lease("a").ttl(LONG).wait(PATIENCE).acquire().await }
        });
        until_subscribed(&cluster).await;
        if round > 0 {
            // Waiting all the while.
            harm(&cluster, |cluster| {
                let to = cluster.failover(&record("a"), Failover::Agreed)?;
                cluster.until_settled()?;
                Ok(to)
            })
            .await;
            until_subscribed(&cluster).await;
        }
        let released = Instant::now();
        lease.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        println!(
            "round {round}: woken {:?} after the release",
            released.elapsed()
        );
        next.release().await.unwrap();
    }
}

/// Until the primary of the key has a subscriber to it.
async fn until_subscribed(cluster: &Arc<RedisCluster>) {
    let began = Instant::now();
    loop {
        let count = harm(cluster, |cluster| {
            let owner = cluster.node(cluster.owner_of(&record("a"))?);
            let reply = owner.command(&["PUBSUB", "SHARDNUMSUB", &record("a")])?;
            Ok(reply.list().and_then(|list| list[1].integer()))
        })
        .await;
        if count == Some(1) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "nobody subscribes");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_follows_its_slot_and_gets_a_hint_then() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let (watcher, other) = (store(&cluster).await, store(&cluster).await);
    let mut hints = watcher.watch(&key("a")).await.unwrap();
    until_heard(&other, &mut hints).await;
    for _ in 0..3 {
        harm(&cluster, |cluster| {
            let slot = cluster.slot_of(&record("a"))?;
            let from = cluster.owner_of_slot(slot)?;
            let to = cluster.primaries().into_iter().find(|to| *to != from);
            cluster.move_slot(slot, to.unwrap())
        })
        .await;
        hint(&mut hints).await;
        until_heard(&other, &mut hints).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_hears_the_replica_that_followed_a_killed_primary() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let (watcher, other) = (store(&cluster).await, store(&cluster).await);
    let mut hints = watcher.watch(&key("a")).await.unwrap();
    harm(&cluster, |cluster| {
        let dead = cluster.owner_of(&record("a"))?;
        cluster.node(dead).kill()?;
        cluster.until_other_owner(cluster.slot_of(&record("a"))?, dead)
    })
    .await;
    hint(&mut hints).await;
    until_heard(&other, &mut hints).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_nobody_serves_takes_no_hints_from_others_of_its_node() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let (watcher, other) = (store(&cluster).await, store(&cluster).await);
    harm(&cluster, |cluster| {
        for node in cluster.nodes() {
            node.config_set("cluster-require-full-coverage", "no")?;
        }
        Ok(())
    })
    .await;
    let mut hints = watcher.watch(&key("a")).await.unwrap();
    let neighbour = harm(&cluster, |cluster| {
        let node = cluster.owner_of(&record("a"))?;
        let slot = cluster.slot_of(&record("a"))?;
        let all = (0..).map(|number| format!("n/{number}"));
        let mut others = all.filter(|name| {
            let name = record(name);
            cluster.owner_of(&name).unwrap() == node && cluster.slot_of(&name).unwrap() != slot
        });
        let neighbour = others.next().unwrap();
        let slot = cluster.slot_of(&record(&neighbour))?.to_string();
        cluster
            .node(node)
            .command(&["CLUSTER", "DELSLOTS", &slot])?;
        Ok(neighbour)
    })
    .await;
    assert!(watcher.watch(&key(&neighbour)).await.is_err());
    // The node was asked; its connection stands all the same.
    assert!(futures_util::future::FutureExt::now_or_never(hints.next()).is_none());
    let asked = request("a", 60_000);
    let grant = granted(other.acquire(&asked).await.unwrap());
    let release = other.release(&asked.key, asked.owner, grant.token);
    release.await.unwrap();
    hint(&mut hints).await;
    assert!(futures_util::future::FutureExt::now_or_never(hints.next()).is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_watchers_of_many_slots_are_woken() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let (watcher, other) = (store(&cluster).await, store(&cluster).await);
    let names: Vec<_> = (0..200).map(|number| format!("many/{number}")).collect();
    let mut all = Vec::new();
    for name in &names {
        all.push(watcher.watch(&key(name)).await.unwrap());
    }
    for (name, hints) in names.iter().zip(&mut all) {
        let asked = request(name, 60_000);
        let grant = granted(other.acquire(&asked).await.unwrap());
        other
            .release(&asked.key, asked.owner, grant.token)
            .await
            .unwrap();
        hint(hints).await;
    }
    // And nobody is left behind.
    drop(all);
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let left: i64 = harm(&cluster, |cluster| {
            let mut left = 0;
            for node in cluster.nodes() {
                let channels = node.command(&["PUBSUB", "SHARDCHANNELS"])?;
                left += channels.list().map_or(0, <[_]>::len) as i64;
            }
            Ok(left)
        })
        .await;
        if left == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("channels are left");
}
