//! Many clients, many groups.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use lease_conformance::servers::redis::RedisServer;
use lease_core::Key;
use lease_queue::{Answer, Lane, QueueStore, Settle, Settled};

use crate::support::{item, name, next, put, queues, retry};

const CLIENTS: usize = 16;
const GROUPS: usize = 50;
const EACH: usize = 12;

#[derive(Default)]
struct Seen {
    /// What each group's owner works on.
    at_work: HashMap<Lane, usize>,
    done: HashMap<Lane, Vec<usize>>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_group_has_one_owner_and_its_order_in_a_race() {
    let server = RedisServer::builder().start().unwrap();
    let queue = name("race");
    let first = queues(&server).await;
    for number in 0..EACH {
        let row = (0..GROUPS).map(|group| item(&number.to_string(), Some(&format!("g{group}"))));
        put(&first, &queue, &row.collect::<Vec<_>>()).await;
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let (store, queue, seen) = (queues(&server).await, queue.clone(), Arc::clone(&seen));
        clients.push(tokio::spawn(async move {
            let mut turn = client;
            loop {
                let request = next(1 + client % 3, 600_000);
                let Answer::Claimed { items, .. } = store.claim(&queue, &request).await.unwrap()
                else {
                    if store.depth(&queue).await.unwrap() == lease_queue::Depth::default() {
                        return;
                    }
                    tokio::task::yield_now().await;
                    continue;
                };
                for claimed in items {
                    let lane = claimed.claim.lane.clone();
                    let number = std::str::from_utf8(&claimed.body).unwrap().parse().unwrap();
                    let other = seen.lock().unwrap().at_work.insert(lane.clone(), number);
                    assert_eq!(other, None, "{lane:?} has two owners");
                    tokio::task::yield_now().await;
                    seen.lock().unwrap().at_work.remove(&lane);
                    turn += 1;
                    // One in five is given back, and comes again in its place.
                    let gives_back = turn.is_multiple_of(5);
                    if !gives_back {
                        let mut seen = seen.lock().unwrap();
                        seen.done.entry(lane).or_default().push(number);
                    }
                    let settle = if gives_back {
                        retry()
                    } else {
                        Settle::Complete
                    };
                    let settled = store.settle(&queue, &[(claimed.claim, settle)]).await;
                    assert_eq!(settled[0].clone().unwrap(), Settled::Done);
                }
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    let seen = seen.lock().unwrap();
    assert_eq!(seen.done.len(), GROUPS);
    for group in 0..GROUPS {
        let lane = Lane::Group(Key::new(format!("g{group}")).unwrap());
        assert_eq!(seen.done[&lane], (0..EACH).collect::<Vec<_>>(), "{lane:?}");
    }
}
