//! A list while slots move.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::TryStreamExt;
use lease_conformance::servers::redis::cluster::RedisCluster;
use lease_core::LeaseBackend;

use crate::support::{granted, request};
use crate::{harm, record, store};

const KEYS: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_is_listed_once_while_slots_move() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let client = store(&cluster).await;
    for number in 0..KEYS {
        let asked = request(&format!("k{number}"), 600_000);
        granted(client.acquire(&asked).await.unwrap());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mover = tokio::spawn({
        let (cluster, stop) = (Arc::clone(&cluster), Arc::clone(&stop));
        async move {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                harm(&cluster, move |cluster| {
                    let slot = cluster.slot_of(&record(&format!("k{}", number % KEYS)))?;
                    let from = cluster.owner_of_slot(slot)?;
                    let to = cluster.primaries().into_iter().rfind(|to| *to != from);
                    cluster.move_slot(slot, to.unwrap())
                })
                .await;
                number += 7;
            }
            number / 7
        }
    });
    for round in 0..5 {
        let listed: Vec<_> = client.list("k").try_collect().await.unwrap();
        let once: HashSet<_> = listed.iter().map(|state| state.key.clone()).collect();
        assert_eq!((listed.len(), once.len()), (KEYS, KEYS), "round {round}");
    }
    stop.store(true, Ordering::Relaxed);
    println!("{} moves meanwhile", mover.await.unwrap());
}
