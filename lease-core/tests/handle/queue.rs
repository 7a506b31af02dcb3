//! Waiters of one client on one key: first come first served, and one of them
//! asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use lease_core::Error;

use crate::support::{Op, Step, World, ms, secs};

/// The most acquires of one key that were under way at once.
fn most_at_once(world: &World, travel: std::time::Duration) -> usize {
    let calls = world.store.calls_of(Op::Acquire);
    let overlaps = |n: usize| {
        let end = calls[n].sent.after(travel);
        calls[n..].iter().take_while(|c| c.sent < end).count()
    };
    (0..calls.len()).map(overlaps).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn two_thousand_waiters_are_served_in_order_with_one_attempt_at_a_time() {
    let world = World::new();
    world.store.always(Op::Acquire, Step::Slow(ms(1), ms(1)));
    let leases = world.leases();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..2_000 {
        let (acquire, served) = (leases.lease("k").acquire(), Arc::clone(&served));
        tasks.push(tokio::spawn(async move {
            let lease = acquire.await.unwrap();
            served.lock().unwrap().push((n, lease.token()));
            lease.release().await.unwrap();
        }));
    }
    join_all(tasks).await;
    let served = served.lock().unwrap();
    assert!(served.iter().map(|s| s.0).eq(0..2_000));
    assert!(served.is_sorted_by(|a, b| a.1 < b.1));
    assert_eq!(most_at_once(&world, ms(2)), 1);
    let calls = world.store.calls().len();
    assert!(calls < 2_000 * 6, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn those_that_give_up_in_the_middle_hold_nobody_up() {
    let world = World::new();
    let leases = world.leases();
    let holder = leases.lease("k").acquire().await.unwrap();
    let mut tasks = Vec::new();
    for n in 0..300_u64 {
        let acquire = leases.lease("k");
        let acquire = match n % 3 {
            1 => acquire.wait(ms(100 + n)),
            _ => acquire,
        };
        tasks.push(tokio::spawn(async move {
            let lease = acquire.acquire().await?;
            lease.release().await.map(|_| ())
        }));
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(secs(1)).await;
    for task in tasks.iter().skip(2).step_by(3) {
        task.abort();
    }
    holder.release().await.unwrap();
    for (n, ended) in join_all(tasks).await.into_iter().enumerate() {
        match n % 3 {
            0 => ended.unwrap().unwrap(),
            1 => assert!(matches!(ended.unwrap(), Err(Error::Contended { .. }))),
            _ => assert!(ended.unwrap_err().is_cancelled()),
        }
    }
    tokio::time::sleep(ms(10)).await;
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_on_one_key_is_nothing_to_those_on_others() {
    let world = World::new();
    let leases = world.leases();
    let _holder = world.other().lease("blocked").acquire().await.unwrap();
    let _waiter = tokio::spawn(leases.lease("blocked").acquire());
    tokio::time::sleep(ms(10)).await;
    let start = world.now();
    let mut held = HashMap::new();
    for n in 0..5_000 {
        let key = format!("k{n}");
        let lease = leases.lease(key.as_str()).acquire().await.unwrap();
        held.insert(key, lease);
    }
    assert_eq!(world.now(), start);
    for (key, lease) in held {
        lease.release().await.unwrap();
        assert!(world.is_free(&key).await);
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_in_line_gets_it_without_the_stores_help() {
    let world = World::new();
    // A store without a word of its own.
    world.store.always(
        Op::Watch,
        Step::Hints(Arc::new(|| Box::pin(futures_util::stream::pending()))),
    );
    let leases = world.leases();
    let holder = leases.lease("k").ttl(secs(30)).acquire().await.unwrap();
    let waiters: Vec<_> = (0..10)
        .map(|_| {
            let acquire = leases.lease("k").ttl(secs(30)).acquire();
            tokio::spawn(async move { acquire.await.unwrap().release().await.unwrap() })
        })
        .collect();
    tokio::time::sleep(ms(10)).await;
    let start = world.now();
    holder.release().await.unwrap();
    join_all(waiters).await;
    assert!(world.now().since(start) <= ms(10));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_dropped_hands_its_turn_on() {
    let world = World::new();
    let leases = world.leases();
    let holder = world.other().lease("k").acquire().await.unwrap();
    let head = tokio::spawn(leases.lease("k").acquire());
    tokio::time::sleep(ms(10)).await;
    let next = tokio::spawn(leases.lease("k").acquire());
    tokio::time::sleep(ms(10)).await;
    head.abort();
    tokio::time::sleep(ms(10)).await;
    holder.release().await.unwrap();
    let start = world.now();
    let _lease = next.await.unwrap().unwrap();
    assert!(world.now().since(start) <= ms(2));
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_hangs_does_not_hide_a_release_of_the_same_client() {
    let world = World::new();
    world.store.always(Op::Watch, Step::LoseReply);
    let leases = world.leases();
    let holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
    let waiter = tokio::spawn(leases.lease("k").ttl(secs(600)).acquire());
    tokio::time::sleep(ms(10)).await;
    let start = world.now();
    holder.release().await.unwrap();
    let _lease = waiter.await.unwrap().unwrap();
    assert!(world.now().since(start) <= ms(2));
}
