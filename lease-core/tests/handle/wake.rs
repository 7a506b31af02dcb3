//! What wakes a waiter, and that nothing turns into busy polling.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use lease_core::{AcquireOutcome, Holder, Label, StoreErrorKind, Token};

use crate::support::{Op, Step, World, ms, secs};

fn hints<S>(make: impl Fn() -> S + Send + Sync + 'static) -> Step
where
    S: futures_util::Stream<Item = ()> + Send + 'static,
{
    Step::Hints(Arc::new(move || make().boxed()))
}

fn held(remaining: Duration) -> Step {
    Step::Acquired(AcquireOutcome::Held(Holder {
        label: Label::new("them").unwrap(),
        token: Token::MIN,
        age: ms(1),
        remaining,
    }))
}

/// Calls that one waiter makes in five seconds.
async fn calls_in_five_seconds(world: &World) -> usize {
    let before = world.store.calls().len();
    world
        .leases()
        .lease("k")
        .wait(secs(5))
        .acquire()
        .await
        .unwrap_err();
    world.store.calls().len() - before
}

#[tokio::test(start_paused = true)]
async fn a_release_between_the_first_try_and_the_subscription_is_not_slept_through() {
    // The subscription stands after ten milliseconds and is answered after
    // twenty: before it, while it is being answered, and right after.
    for released in [5, 15, 25] {
        let world = World::new();
        world.store.always(Op::Watch, Step::Slow(ms(10), ms(10)));
        let holder = world
            .other()
            .lease("k")
            .ttl(secs(600))
            .acquire()
            .await
            .unwrap();
        let start = world.now();
        tokio::spawn(async move {
            tokio::time::sleep(ms(released)).await;
            holder.release().await.unwrap();
        });
        let _lease = world.leases().lease("k").acquire().await.unwrap();
        assert!(world.now().since(start) <= ms(40), "{released}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_by_another_client_wakes_at_once() {
    let world = World::new();
    let holder = world
        .other()
        .lease("k")
        .ttl(secs(600))
        .acquire()
        .await
        .unwrap();
    let waiter = tokio::spawn(world.leases().lease("k").acquire());
    tokio::time::sleep(secs(60)).await;
    let start = world.now();
    holder.release().await.unwrap();
    let _lease = waiter.await.unwrap().unwrap();
    assert!(world.now().since(start) <= ms(2));
}

#[tokio::test(start_paused = true)]
async fn lost_hints_cost_the_holders_remaining_time_and_no_more() {
    for watch in [
        hints(futures_util::stream::pending),
        Step::Fail(StoreErrorKind::Unavailable),
        Step::Fail(StoreErrorKind::Refusing),
        Step::LoseReply,
        Step::Panic,
    ] {
        let world = World::new();
        world.store.always(Op::Watch, watch.clone());
        let holder = world
            .other()
            .lease("k")
            .ttl(secs(3))
            .acquire()
            .await
            .unwrap();
        let start = world.now();
        holder.detach().unwrap();
        let _lease = world
            .leases()
            .lease("k")
            .ttl(secs(30))
            .acquire()
            .await
            .unwrap();
        let took = world.now().since(start);
        assert!(took >= secs(3) && took <= ms(3_005), "{watch:?}: {took:?}");
        assert!(world.store.calls().len() < 12, "{watch:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_hears_nothing_looks_again_by_itself() {
    let world = World::new();
    world
        .store
        .always(Op::Watch, hints(futures_util::stream::pending));
    let holder = world
        .other()
        .lease("k")
        .ttl(secs(600))
        .acquire()
        .await
        .unwrap();
    let waiter = tokio::spawn(world.leases().lease("k").acquire());
    tokio::time::sleep(secs(60)).await;
    let start = world.now();
    holder.release().await.unwrap();
    let _lease = waiter.await.unwrap().unwrap();
    assert!(world.now().since(start) <= secs(5) + ms(2));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_five_seconds_costs_a_handful_of_calls() {
    let world = World::new();
    let _holder = world
        .other()
        .lease("k")
        .ttl(secs(600))
        .acquire()
        .await
        .unwrap();
    let calls = calls_in_five_seconds(&world).await;
    assert!(calls <= 6, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_spurious_hints_costs_a_bounded_number_of_calls() {
    let always_ready = hints(|| futures_util::stream::repeat(()));
    let every_ms = hints(|| {
        futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(ms(1)).await;
            Some(((), ()))
        })
    });
    for watch in [always_ready, every_ms] {
        let world = World::new();
        let _holder = world
            .other()
            .lease("k")
            .ttl(secs(600))
            .acquire()
            .await
            .unwrap();
        world.store.always(Op::Watch, watch);
        let calls = calls_in_five_seconds(&world).await;
        assert!(calls < 350, "{calls}");
    }
}

#[tokio::test(start_paused = true)]
async fn hints_that_lie_ready_are_one_hint() {
    let world = World::new();
    let _holder = world
        .other()
        .lease("k")
        .ttl(secs(600))
        .acquire()
        .await
        .unwrap();
    // Ten thousand at once, then silence.
    let burst = hints(|| {
        futures_util::stream::repeat(())
            .take(10_000)
            .chain(futures_util::stream::pending())
    });
    world.store.always(Op::Watch, burst);
    let calls = calls_in_five_seconds(&world).await;
    assert!(calls < 25, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_ends_at_once_or_after_a_hint_or_panics_is_no_busy_loop() {
    let ends = hints(futures_util::stream::empty);
    let one = hints(|| futures_util::stream::repeat(()).take(1));
    let panics =
        hints(|| futures_util::stream::unfold((), |()| async { panic!("scripted: hints") }));
    for (watch, limit) in [(ends, 60), (panics, 60), (one, 120)] {
        let world = World::new();
        let _holder = world
            .other()
            .lease("k")
            .ttl(secs(600))
            .acquire()
            .await
            .unwrap();
        world.store.always(Op::Watch, watch);
        let calls = calls_in_five_seconds(&world).await;
        assert!(calls < limit, "{calls}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_breaks_is_made_again() {
    let world = World::new();
    let holder = world
        .other()
        .lease("k")
        .ttl(secs(600))
        .acquire()
        .await
        .unwrap();
    world.store.next(
        Op::Watch,
        [hints(|| {
            futures_util::stream::once(tokio::time::sleep(secs(1))).filter(|()| async { false })
        })],
    );
    let waiter = tokio::spawn(world.leases().lease("k").acquire());
    tokio::time::sleep(ms(1_100)).await;
    assert_eq!(world.store.count(Op::Watch), 2);
    let start = world.now();
    holder.release().await.unwrap();
    let _lease = waiter.await.unwrap().unwrap();
    assert!(world.now().since(start) <= ms(2));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_follows_a_holder_that_renews_and_then_stops() {
    let world = World::new();
    world
        .store
        .always(Op::Watch, hints(futures_util::stream::pending));
    let holder = world
        .other()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let waiter = tokio::spawn(world.leases().lease("k").ttl(secs(30)).acquire());
    tokio::time::sleep(secs(9)).await;
    let renewals = world.store.calls_of(Op::Renew);
    let last = renewals.last().unwrap().sent;
    holder.detach().unwrap();
    let _lease = waiter.await.unwrap().unwrap();
    let after = world.now().since(last);
    assert!(after >= secs(3) && after <= ms(3_010), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn no_time_left_is_looked_after_at_once_but_not_for_ever() {
    let world = World::new();
    world.store.next(Op::Acquire, [held(ms(0)), held(ms(0))]);
    let start = world.now();
    let _lease = world.leases().lease("k").acquire().await.unwrap();
    assert!(world.now().since(start) <= ms(5));
    let world = World::new();
    world
        .store
        .always(Op::Watch, hints(futures_util::stream::pending));
    world.store.always(Op::Acquire, held(ms(0)));
    let calls = calls_in_five_seconds(&world).await;
    assert!(calls < 400, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_remaining_time_that_is_a_lie_is_not_believed_for_ever() {
    let world = World::new();
    world
        .store
        .always(Op::Watch, hints(futures_util::stream::pending));
    world
        .store
        .next(Op::Acquire, [held(secs(1 << 40)), held(Duration::MAX)]);
    let start = world.now();
    let _lease = world.leases().lease("k").acquire().await.unwrap();
    assert!(world.now().since(start) <= secs(11));
}
