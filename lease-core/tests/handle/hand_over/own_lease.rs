//! A waiter that sleeps because its own client holds the key never sleeps
//! through the end of that.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt};
use lease_core::{Attempt, Error, FenceWhen, Key, LeaseBackend, Moment, StoreErrorKind, Token};

use super::{counts, no_hints, waiter};
use crate::support::{Op, Step, World, ms, secs};

#[tokio::test(start_paused = true)]
async fn one_who_comes_during_a_release_asks_once_it_is_answered() {
    for held in [0, 10, 100] {
        let world = World::new();
        world
            .store
            .next(Op::Release, [Step::Slow(ms(200), ms(100))]);
        let leases = world.leases();
        let holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
        tokio::time::sleep(ms(held)).await;
        let start = world.now();
        let release = tokio::spawn(holder.release());
        tokio::time::sleep(ms(5)).await;
        let next = waiter(&world, &leases);
        release.await.unwrap().unwrap();
        assert_eq!(next.await.unwrap(), start.after(ms(300)), "{held}");
        assert_eq!(counts(&world), [2, 2, 0], "{held}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_is_dropped_hands_over_like_a_release() {
    let world = World::new();
    world.store.next(Op::Release, [Step::Slow(ms(20), ms(20))]);
    let leases = world.leases();
    let holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
    let next = waiter(&world, &leases);
    tokio::time::sleep(ms(10)).await;
    let start = world.now();
    drop(holder);
    assert_eq!(next.await.unwrap(), start.after(ms(40)));
    assert_eq!(counts(&world), [2, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_is_lost_holds_nobody_up() {
    // Long enough that the head has subscribed: the hint is enough. Otherwise
    // the release's own patience.
    for (held, limit) in [(200, ms(60)), (0, ms(1_010)), (30, ms(1_010))] {
        let world = World::new();
        world.store.next(Op::Release, [Step::LoseReply]);
        let leases = world.leases();
        let holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
        let next = waiter(&world, &leases);
        tokio::time::sleep(ms(held)).await;
        let start = world.now();
        drop(holder);
        let took = next.await.unwrap().since(start);
        assert!(took <= limit, "held {held} ms: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_never_arrives_costs_the_ttl_and_no_more() {
    for step in [
        Step::LoseRequest,
        Step::Fail(StoreErrorKind::Unavailable),
        Step::Fail(StoreErrorKind::InvalidInput),
        Step::Panic,
    ] {
        let world = World::new();
        world.store.always(Op::Release, step.clone());
        let leases = world.leases();
        let holder = leases.lease("k").ttl(secs(8)).acquire().await.unwrap();
        let next = tokio::spawn(leases.lease("k").acquire());
        tokio::time::sleep(ms(100)).await;
        drop(holder);
        let lease = next.await.unwrap().unwrap();
        let since = world.now().since(Moment::START.after(secs(1)));
        assert!(
            since >= secs(8) && since <= ms(8_010),
            "{step:?}: {since:?}"
        );
        assert!(world.store.count(Op::Acquire) < 12, "{step:?}");
        lease.check().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_detached_is_waited_for_like_anybody_elses() {
    let world = World::new();
    let leases = world.leases();
    let holder = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    let start = world.now();
    let next = waiter(&world, &leases);
    tokio::time::sleep(ms(500)).await;
    let grant = holder.detach().unwrap();
    assert_eq!(next.await.unwrap().since(start), ms(3_001));
    // And whoever has its words frees it.
    let holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
    let next = waiter(&world, &leases);
    tokio::time::sleep(ms(500)).await;
    let words = holder.detach().unwrap();
    assert!(words.token > grant.token);
    tokio::time::sleep(secs(2)).await;
    let start = world.now();
    let backend = leases.backend();
    backend
        .release(&words.key, words.owner, words.token)
        .await
        .unwrap();
    assert_eq!(next.await.unwrap(), start);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_fenced_is_tried_though_its_holder_still_believes() {
    for (hints, limit) in [(true, ms(1)), (false, secs(5) + ms(2))] {
        let world = World::new();
        if !hints {
            world.store.always(Op::Watch, no_hints());
        }
        let leases = world.leases();
        let holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
        let next = waiter(&world, &leases);
        tokio::time::sleep(ms(500)).await;
        let start = world.now();
        let above = Token::new(holder.token().get() + 1).unwrap();
        let operator = world.other();
        operator
            .fence("k", above, FenceWhen::Immediately)
            .await
            .unwrap();
        let took = next.await.unwrap().since(start);
        assert!(took <= limit, "{took:?}");
        // It does not know yet; its release is refused, and harms nobody.
        holder.check().unwrap();
        let after = leases.lease("k").acquire().await.unwrap();
        holder.release().await.unwrap_err();
        let last = waiter(&world, &leases);
        tokio::time::sleep(ms(10)).await;
        let start = world.now();
        after.release().await.unwrap();
        assert_eq!(last.await.unwrap(), start);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_not_lost_with_the_head_that_heard_it() {
    let world = World::new();
    let leases = world.leases();
    let holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
    let head = waiter(&world, &leases);
    tokio::time::sleep(ms(200)).await;
    let next = waiter(&world, &leases);
    tokio::time::sleep(ms(200)).await;
    world.store.next(Op::Acquire, [Step::LoseRequest]);
    let above = Token::new(holder.token().get() + 1).unwrap();
    leases
        .fence("k", above, FenceWhen::Immediately)
        .await
        .unwrap();
    tokio::time::sleep(ms(10)).await;
    assert_eq!(world.store.count(Op::Acquire), 2);
    // In the middle of the attempt that the hint asked for.
    let start = world.now();
    head.abort();
    assert_eq!(next.await.unwrap(), start);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_another_process_took_over_is_waited_for_there() {
    let world = World::new();
    let leases = world.leases();
    let holder = leases.lease("k").ttl(secs(6)).acquire().await.unwrap();
    // The hint of the fence is lost: only its own renewal says what happened.
    let memory = world.store.memory();
    let but_the_first = move || {
        let key = Key::new("k").unwrap();
        let hints = memory.watch(&key).now_or_never().unwrap().unwrap();
        hints.skip(1).boxed()
    };
    let hints = Step::Hints(Arc::new(but_the_first));
    world.store.next(Op::Watch, [hints]);
    let next = waiter(&world, &leases);
    tokio::time::sleep(ms(500)).await;
    let above = Token::new(holder.token().get() + 1).unwrap();
    leases
        .fence("k", above, FenceWhen::Immediately)
        .await
        .unwrap();
    let theirs = world.other().lease("k").ttl(secs(600));
    let Attempt::Acquired(theirs) = theirs.try_acquire().await.unwrap() else {
        panic!("it was free");
    };
    holder.lost().await;
    tokio::time::sleep(secs(20)).await;
    drop(holder);
    tokio::time::sleep(ms(10)).await;
    assert!(world.store.count(Op::Acquire) <= 10);
    let start = world.now();
    theirs.release().await.unwrap();
    assert_eq!(next.await.unwrap(), start);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_missed_something_is_made_again() {
    let world = World::new();
    world.store.next(Op::Watch, [no_hints()]);
    let (ours, theirs) = (world.leases(), world.other());
    let theirs = theirs.lease("k").ttl(secs(600)).acquire().await.unwrap();
    let next = tokio::spawn(ours.lease("k").ttl(secs(600)).acquire());
    tokio::time::sleep(ms(10)).await;
    let last = waiter(&world, &ours);
    let start = world.now();
    theirs.release().await.unwrap();
    let ours = next.await.unwrap().unwrap();
    // The deaf one costs the timer, once.
    assert!(world.now().since(start) > secs(4));
    assert_eq!(world.store.count(Op::Watch), 1);
    tokio::time::sleep(secs(1)).await;
    assert_eq!(world.store.count(Op::Watch), 2);
    ours.release().await.unwrap();
    last.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_time_beside_our_own_lease_is_not_the_stores_silence() {
    let world = World::new();
    let leases = world.leases();
    let holder = leases.lease("k").acquire().await.unwrap();
    let waiting = leases.lease("k").first_answer_within(ms(100)).acquire();
    let next = tokio::spawn(waiting);
    tokio::time::sleep(ms(300)).await;
    world.store.next(Op::Acquire, [Step::Slow(ms(20), ms(20))]);
    holder.release().await.unwrap();
    let _lease = next.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_our_own_release_another_process_may_win_and_release_unseen() {
    // Between the failed try, the subscription, and after it.
    for released in [5, 15, 25] {
        let world = World::new();
        world.store.always(Op::Watch, Step::Slow(ms(10), ms(10)));
        let leases = world.leases();
        let holder = leases.lease("k").acquire().await.unwrap();
        let next = waiter(&world, &leases);
        tokio::time::sleep(ms(10)).await;
        // They are there first.
        let taken = Arc::new(std::sync::Mutex::new(None));
        let (theirs, slot) = (world.other(), Arc::clone(&taken));
        let take = move || {
            let attempt = theirs.lease("k").ttl(secs(600)).try_acquire();
            *slot.lock().unwrap() = attempt.now_or_never();
        };
        world
            .store
            .next(Op::Release, [Step::ApplyThen(Arc::new(take))]);
        holder.release().await.unwrap();
        let theirs = taken.lock().unwrap().take().unwrap().unwrap();
        let theirs = theirs.lease().unwrap();
        tokio::time::sleep(ms(released)).await;
        let start = world.now();
        theirs.release().await.unwrap();
        let took = next.await.unwrap().since(start);
        assert!(took <= ms(20), "{released}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_is_no_reason_to_sleep() {
    let world = World::new();
    let leases = world.leases();
    let acquire = leases.lease("k").ttl(secs(2)).max_hold(secs(1));
    let holder = acquire.acquire().await.unwrap();
    let start = world.now();
    let next = waiter(&world, &leases);
    holder.lost().await;
    assert_eq!(world.now().since(start), secs(1));
    // Its handle stays: the key is free at the expiry of its last renewal.
    let since = next.await.unwrap().since(start);
    assert!(since >= secs(2) && since <= secs(3), "{since:?}");
    drop(holder);
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_dropped_at_any_moment_leaves_the_key_to_the_next() {
    for dropped in 0..120 {
        let world = World::new();
        for op in [Op::Acquire, Op::Release] {
            world.store.always(op, Step::Slow(ms(3), ms(3)));
        }
        world.store.always(Op::Watch, Step::Slow(ms(5), ms(5)));
        let leases = world.leases();
        let holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
        let start = world.now();
        let head = waiter(&world, &leases);
        tokio::task::yield_now().await;
        let next = waiter(&world, &leases);
        let release = tokio::spawn(async move {
            tokio::time::sleep(ms(80)).await;
            holder.release().await.unwrap();
        });
        tokio::time::sleep(ms(dropped)).await;
        head.abort();
        release.await.unwrap();
        let when = next.await.unwrap().since(start);
        assert!(when <= ms(160), "{dropped}: {when:?}");
        tokio::time::sleep(secs(1)).await;
        assert!(world.is_free("k").await, "{dropped}");
        assert!(world.store.count(Op::Acquire) <= 6, "{dropped}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_never_had_to_ask_names_the_holder_all_the_same() {
    let world = World::new();
    let leases = world.leases();
    let holder = leases.lease("k").label("me").acquire().await.unwrap();
    tokio::time::sleep(ms(100)).await;
    let waited = leases.lease("k").wait(ms(200)).first_answer_within(ms(100));
    let error = waited.acquire().await.unwrap_err();
    let Error::Contended {
        waited,
        holder: seen,
        store,
        ..
    } = error
    else {
        panic!("expected a contended key, got {error:?}");
    };
    let seen = seen.unwrap();
    assert_eq!((waited, store.is_none()), (ms(200), true));
    assert_eq!((seen.token, seen.label.as_str()), (holder.token(), "me"));
    assert!(seen.age >= ms(100) && seen.remaining > secs(20));
    assert_eq!(world.store.count(Op::Acquire), 1);
}
