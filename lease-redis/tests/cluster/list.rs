//! A list while slots move.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use lease_conformance::servers::ServerError;
use lease_conformance::servers::redis::RedisServer;
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

/// Until a node has heard what it must know for that.
fn until_it_takes(node: &RedisServer, words: &[&str]) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match node.command(words) {
            Ok(_) => return,
            Err(error) if Instant::now() > end => panic!("{words:?}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Which nothing in the picture of the slots names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_moved_to_a_new_node_without_slots_are_listed() {
    let cluster = Arc::new(RedisCluster::builder().start().unwrap());
    let client = store(&cluster).await;
    for number in 0..9 {
        let asked = request(&format!("k{number}"), 600_000);
        granted(client.acquire(&asked).await.unwrap());
    }
    let new = harm(&cluster, |cluster| {
        let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let bus_port = bus.local_addr().unwrap().port().to_string();
        drop(bus);
        let new = RedisServer::builder()
            .config("cluster-enabled yes")
            .config("cluster-node-timeout 1000")
            .config(&format!("cluster-port {bus_port}"))
            .start()?;
        let port = new.address().port().to_string();
        cluster
            .node(0)
            .command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port])?;
        // It takes requests when it has heard of everybody's slots.
        let end = Instant::now() + Duration::from_secs(20);
        while !new
            .command(&["CLUSTER", "INFO"])?
            .text()
            .unwrap()
            .contains("state:ok")
        {
            assert!(Instant::now() < end, "the new node does not serve");
            std::thread::sleep(Duration::from_millis(50));
        }
        let slot = cluster.slot_of(&record("k0"))?;
        let source = cluster.node(cluster.owner_of_slot(slot)?);
        let slot = slot.to_string();
        let id = |node: &RedisServer| {
            let id = node.command(&["CLUSTER", "MYID"])?;
            Ok::<_, ServerError>(id.text().unwrap().to_owned())
        };
        let (from, to) = (id(source)?, id(&new)?);
        until_it_takes(&new, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from]);
        until_it_takes(source, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to]);
        let names = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"])?;
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(
            names
                .list()
                .unwrap()
                .iter()
                .map(|name| name.text().unwrap()),
        );
        source.command(&words)?;
        Ok(new)
    })
    .await;
    let listed: Vec<_> = client.list("k").try_collect().await.unwrap();
    let mut names: Vec<_> = listed.iter().map(|state| state.key.to_string()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        (0..9)
            .map(|number| format!("k{number}"))
            .collect::<Vec<_>>()
    );
    drop(new);
}
