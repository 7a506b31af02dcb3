//! An acquisition that is dropped, at every point that it can be dropped at.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use lease_core::{Lease, StoreErrorKind};

use crate::support::{Op, Step, World, ms, secs};

struct Ignored;

impl Wake for Ignored {
    fn wake(self: Arc<Self>) {}
}

/// Polls `future` up to `polls` times, a millisecond apart, then drops it.
async fn poll_times<F: Future>(future: F, polls: usize, apart: Duration) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Ignored));
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        if let std::task::Poll::Ready(output) = polled {
            return Some(output);
        }
        tokio::time::sleep(apart).await;
    }
    None
}

/// Nothing of the dropped acquisition blocks the key, nor ever will.
async fn leaves_nothing(world: &World, what: &str) {
    // A late request lands at the latest after this.
    tokio::time::sleep(secs(2)).await;
    assert!(world.is_free("k").await, "{what}");
    let sent = world.store.calls_of(Op::Acquire);
    let done: Vec<_> = world.store.calls_of(Op::Abandon);
    for call in sent {
        let once = world.store.calls_of(Op::Acquire);
        let attempts = once.iter().filter(|c| c.owner == call.owner).count();
        let answered = call.answer == "failed: unavailable"
            || (call.applied.is_some() && !call.answer.contains("Granted"));
        let cleaned = done.iter().any(|c| c.owner == call.owner);
        assert!(cleaned || (attempts == 1 && answered), "{what}: {call:?}");
    }
}

fn scripts() -> Vec<(&'static str, Vec<Step>)> {
    let unknown = StoreErrorKind::UnknownOutcome;
    vec![
        ("slow there", vec![Step::Slow(ms(5), ms(0))]),
        ("slow back", vec![Step::Slow(ms(0), ms(5))]),
        ("slow both", vec![Step::Slow(ms(5), ms(5))]),
        ("lost request", vec![Step::LoseRequest, Step::LoseRequest]),
        (
            "lost reply",
            vec![Step::LoseReply, Step::Slow(ms(2), ms(2))],
        ),
        (
            "unknown, then slow",
            vec![Step::ApplyThenFail(unknown), Step::Slow(ms(5), ms(5))],
        ),
        (
            "unknown, lands late",
            vec![Step::FailThenApply(unknown, secs(1)), Step::LoseRequest],
        ),
        (
            "unavailable, then slow",
            vec![
                Step::Fail(StoreErrorKind::Unavailable),
                Step::Slow(ms(5), ms(5)),
            ],
        ),
    ]
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_after_any_number_of_polls_leaves_nothing() {
    for (what, steps) in scripts() {
        let mut completed = false;
        for polls in 0..40 {
            let world = World::new();
            world.store.next(Op::Acquire, steps.clone());
            let leases = world.leases();
            let acquire = leases.lease("k").ttl(secs(600)).acquire();
            match poll_times(acquire, polls, ms(1)).await {
                Some(lease) => {
                    lease.unwrap().release().await.unwrap();
                    completed = true;
                }
                None => assert!(!completed, "{what}: completed with fewer polls"),
            }
            let what = format!("{what}, {polls} polls");
            tokio::time::sleep(ms(1)).await;
            leaves_nothing_or_released(&world, &what).await;
        }
    }
}

/// As [`leaves_nothing`], where the acquisition may also have succeeded.
async fn leaves_nothing_or_released(world: &World, what: &str) {
    if world.words().contains(&"released") {
        tokio::time::sleep(secs(2)).await;
        assert!(world.is_free("k").await, "{what}");
    } else {
        leaves_nothing(world, what).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_acquire_dropped_after_any_number_of_polls_leaves_nothing() {
    for (what, steps) in scripts() {
        for polls in 0..15 {
            let world = World::new();
            world.store.next(Op::Acquire, steps.clone());
            let attempt = world.leases().lease("k").ttl(secs(600)).try_acquire();
            drop(poll_times(attempt, polls, ms(1)).await);
            let what = format!("{what}, {polls} polls");
            tokio::time::sleep(ms(1)).await;
            leaves_nothing_or_released(&world, &what).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_dropped_at_any_point_of_its_wait_leaves_nothing() {
    for polls in 0..60 {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Slow(ms(1), ms(1)));
        world.store.always(Op::Watch, Step::Slow(ms(1), ms(1)));
        let holder = world
            .other()
            .lease("k")
            .ttl(ms(60))
            .acquire()
            .await
            .unwrap();
        let _ = holder.detach();
        let acquire = world.leases().lease("k").ttl(secs(600)).acquire();
        if let Some(lease) = poll_times(acquire, polls, ms(2)).await {
            lease.unwrap().release().await.unwrap();
        }
        tokio::time::sleep(secs(1)).await;
        assert!(world.is_free("k").await, "{polls} polls");
        // And the local queue is not stuck.
        let next = world.other().lease("k").wait(secs(1)).acquire().await;
        let _lease = next.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_around_an_acquire_leaves_nothing() {
    for limit in 1..12 {
        for (what, steps) in scripts() {
            let world = World::new();
            world.store.next(Op::Acquire, steps);
            let acquire = world.leases().lease("k").ttl(secs(600)).acquire();
            let won = tokio::time::timeout(ms(limit), acquire).await;
            drop(won);
            tokio::time::sleep(ms(1)).await;
            leaves_nothing_or_released(&world, what).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_select_around_an_acquire_never_drops_a_lease_unreleased() {
    for limit in 1..12 {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Slow(ms(3), ms(3))]);
        let acquire = world.leases().lease("k").ttl(secs(600)).acquire();
        let lease: Option<Lease> = tokio::select! {
            lease = acquire => Some(lease.unwrap()),
            () = tokio::time::sleep(ms(limit)) => None,
        };
        if limit != 6 {
            assert_eq!(lease.is_some(), limit > 6);
        }
        drop(lease);
        tokio::time::sleep(ms(1)).await;
        leaves_nothing_or_released(&world, "select").await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_lands_after_its_caller_gave_up_is_refused() {
    let world = World::new();
    world.store.next(Op::Acquire, [Step::Slow(secs(20), ms(0))]);
    let acquire = world
        .leases()
        .lease("k")
        .ttl(secs(600))
        .wait(secs(2))
        .acquire();
    acquire.await.unwrap_err();
    tokio::time::sleep(secs(30)).await;
    let late = &world.store.calls_of(Op::Acquire)[0];
    assert!(late.applied.is_some() && late.answer.contains("Abandoned"));
    let _lease = world
        .other()
        .lease("k")
        .try_acquire()
        .await
        .unwrap()
        .lease()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_time_is_up_in_the_local_queue_never_becomes_the_owner() {
    let world = World::new();
    let leases = world.leases();
    let holder = leases.lease("k").acquire().await.unwrap();
    let head = tokio::spawn(leases.lease("k").acquire());
    tokio::time::sleep(ms(10)).await;
    let error = leases.lease("k").wait(secs(1)).acquire().await.unwrap_err();
    assert!(matches!(error, lease_core::Error::Contended { .. }));
    holder.release().await.unwrap();
    let lease = head.await.unwrap().unwrap();
    lease.check().unwrap();
    let mut owners: Vec<_> = world
        .store
        .calls_of(Op::Acquire)
        .iter()
        .map(|c| c.owner)
        .collect();
    owners.dedup();
    assert_eq!(owners.len(), 2, "the one that gave up had asked nothing");
}
