//! Waiting for an item.

use std::sync::{Arc, Mutex};

use lease_core::{StoreError, StoreErrorKind};
use tokio::time::Instant;

use crate::world::{Fault, Op, World, mail, ms, secs};

#[tokio::test(start_paused = true)]
async fn a_waiter_wakes_at_a_put_a_return_and_a_delays_end() {
    let world = World::new();
    let queue = world.queue();
    let waiting = || {
        let queue = queue.clone();
        tokio::spawn(async move { queue.claim().await.unwrap() })
    };
    let first = waiting();
    tokio::time::sleep(secs(3)).await;
    let asked = world.calls(Op::Claim);
    let put = Instant::now();
    queue.put(&mail("ann")).await.unwrap();
    let claim = first.await.unwrap();
    assert!(put.elapsed() < ms(5), "{:?}", put.elapsed());
    assert_eq!(
        world.calls(Op::Claim) - asked,
        1,
        "the hint, and one request"
    );
    let second = waiting();
    tokio::time::sleep(secs(3)).await;
    let asked = world.calls(Op::Claim);
    let back = Instant::now();
    claim.abandon().await.unwrap();
    let claim = second.await.unwrap();
    assert!(back.elapsed() < ms(5), "{:?}", back.elapsed());
    assert_eq!(
        world.calls(Op::Claim) - asked,
        1,
        "the hint, and one request"
    );
    let third = waiting();
    tokio::time::sleep(secs(1)).await;
    claim.retry_after(secs(2)).await.unwrap();
    let back = Instant::now();
    third.await.unwrap().complete().await.unwrap();
    let waited = back.elapsed();
    assert!(waited >= secs(2) && waited < ms(2_050), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_wakes_at_the_expiry_of_a_crashed_workers_claim() {
    let world = World::new();
    let (dead, live) = (world.queue(), world.queue());
    dead.put(&mail("ann")).await.unwrap();
    let claim = dead.claim().await.unwrap();
    world.fails(Op::Extend, &[Fault::Unavailable; 1000]);
    let start = Instant::now();
    let next = live.claim().await.unwrap();
    assert_eq!(next.attempt(), 2);
    assert!(start.elapsed() <= ms(10_050), "{:?}", start.elapsed());
    drop(claim);
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_served_in_order_and_one_asks_for_all() {
    let world = World::new();
    let queue = world.queue();
    let mut waiting = Vec::new();
    for n in 0..20 {
        let queue = queue.clone();
        waiting.push(tokio::spawn(async move {
            let claim = queue.claim().await.unwrap();
            let to = claim.payload().to.clone();
            claim.complete().await.unwrap();
            (n, to)
        }));
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(ms(1)).await;
    let before = world.calls(Op::Claim);
    tokio::time::sleep(secs(60)).await;
    let asked = world.calls(Op::Claim) - before;
    assert!(asked <= 15, "{asked} requests of one waiter in a minute");
    for n in 0..20 {
        queue.put(&mail(&n.to_string())).await.unwrap();
    }
    for waiter in waiting {
        let (n, to) = waiter.await.unwrap();
        assert_eq!(to, n.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_has_a_limit_and_zero_is_one_attempt() {
    let world = World::new();
    let queue = world.queue();
    let start = Instant::now();
    assert!(queue.claim_within(secs(7)).await.unwrap().is_none());
    assert_eq!(start.elapsed(), secs(7));
    let before = world.calls(Op::Claim);
    assert!(queue.claim_within(secs(0)).await.unwrap().is_none());
    assert_eq!(world.calls(Op::Claim) - before, 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_out_of_reach_is_waited_for_and_a_refusal_is_told() {
    let world = World::new();
    let queue = world.queue();
    queue.put(&mail("ann")).await.unwrap();
    world.fails(Op::Claim, &[Fault::Unavailable; 6]);
    let claim = queue.claim().await.unwrap();
    claim.abandon().await.unwrap();
    world.fails(Op::Claim, &[Fault::Refuses]);
    let error = queue.claim().await.unwrap_err();
    assert!(error.to_string().contains("read-only"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_hangs_keeps_nobody_from_looking() {
    let world = World::new();
    let queue = world.queue();
    world.fails(Op::Watch, &[Fault::Unavailable, Fault::Hangs, Fault::Hangs]);
    let waiting = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.claim().await.unwrap() })
    };
    // Into the first one that hangs, and into the second.
    for wait in [ms(1_100), ms(11_100)] {
        tokio::time::sleep(wait).await;
        let before = world.calls(Op::Claim);
        tokio::time::sleep(ms(1_000)).await;
        let asked = world.calls(Op::Claim) - before;
        assert!((1..=5).contains(&asked), "{asked} looks in a second");
    }
    let put = Instant::now();
    queue.put(&mail("ann")).await.unwrap();
    waiting.await.unwrap().complete().await.unwrap();
    assert!(put.elapsed() <= ms(260), "{:?}", put.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_outlasts_those_who_wait_stands_in_the_end() {
    let world = World::new();
    let queue = world.queue();
    world.fails(Op::Watch, &[Fault::Slow]);
    for _ in 0..8 {
        let claim = queue.claim_within(ms(500)).await.unwrap();
        assert!(claim.is_none());
    }
    assert_eq!(world.calls(Op::Watch), 1);
    let waiting = {
        let queue = queue.clone();
        tokio::spawn(async move { queue.claim().await.unwrap() })
    };
    tokio::time::sleep(ms(100)).await;
    let put = Instant::now();
    queue.put(&mail("ann")).await.unwrap();
    waiting.await.unwrap().complete().await.unwrap();
    assert!(put.elapsed() < ms(5), "{:?}", put.elapsed());
}

#[tokio::test(start_paused = true)]
async fn whoever_is_told_of_requests_hears_of_an_outage_and_of_its_end() {
    let world = World::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let queue = world
        .builder()
        .on_request(move |answer| tell.lock().unwrap().push(answer.map_err(StoreError::kind)))
        .build()
        .unwrap();
    world.fails(Op::Claim, &[Fault::Unavailable, Fault::Hangs]);
    queue.put(&mail("ann")).await.unwrap();
    queue.claim().await.unwrap().complete().await.unwrap();
    let heard = std::mem::take(&mut *told.lock().unwrap());
    assert_eq!(
        heard,
        [
            Err(StoreErrorKind::Unavailable),
            Err(StoreErrorKind::UnknownOutcome),
            Ok(())
        ]
    );
    // That there is nothing is an answer, too.
    assert!(queue.try_claim().await.unwrap().is_none());
    assert_eq!(*told.lock().unwrap(), [Ok(())]);
}
