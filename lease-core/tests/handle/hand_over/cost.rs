//! What it costs the store: one attempt for each release.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use lease_core::{Attempt, Error, Key, LeaseBackend, Leases, StoreErrorKind};

use super::{counts, waiter};
use crate::support::{Op, Step, World, ms, secs};

/// So many tasks of these clients, in turn, take the key once each and hold it
/// for `hold`. Whose tasks were served, in that order.
async fn all_at_once(clients: &[Leases], tasks: usize, hold: Duration) -> Vec<usize> {
    let served = Arc::new(Mutex::new(Vec::new()));
    let work = |whose: usize, leases: Leases, served: Arc<Mutex<Vec<usize>>>| async move {
        let lease = leases.lease("k").acquire().await.unwrap();
        served.lock().unwrap().push(whose);
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
        }
        lease.release().await.unwrap();
    };
    let clients = clients.iter().enumerate().cycle().take(tasks);
    let tasks = clients
        .map(|(whose, leases)| tokio::spawn(work(whose, leases.clone(), Arc::clone(&served))));
    for ended in join_all(tasks).await {
        ended.unwrap();
    }
    let served = served.lock().unwrap();
    served.clone()
}

/// The store's own hints, each so much later.
fn late_hints(world: &World, by: Duration) -> Step {
    let memory = world.store.memory();
    Step::Hints(Arc::new(move || {
        let key = Key::new("k").unwrap();
        let hints = memory.watch(&key).now_or_never().unwrap().unwrap();
        let delayed = move |()| tokio::time::sleep(by);
        hints.map(delayed).buffered(64).boxed()
    }))
}

#[tokio::test(start_paused = true)]
async fn a_release_costs_one_attempt_and_all_of_them_one_subscription() {
    for (there, back) in [(0, 0), (1, 1), (5, 1), (1, 5), (60, 60)] {
        for hold in [0, 3, 70] {
            let world = World::new();
            for op in [Op::Acquire, Op::Release] {
                world.store.always(op, Step::Slow(ms(there), ms(back)));
            }
            all_at_once(&[world.leases()], 2_000, ms(hold)).await;
            let [acquires, releases, subscriptions] = counts(&world);
            let what = format!("{there}+{back} ms, held {hold} ms");
            assert_eq!((acquires, releases), (2_000, 2_000), "{what}");
            assert!(subscriptions <= 1, "{what}: {subscriptions}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hints_of_our_own_releases_cost_nothing_when_they_are_late() {
    for late in [0, 1, 5, 20] {
        for hold in [0, 3, 30, 70, 200] {
            let world = World::new();
            for op in [Op::Acquire, Op::Release] {
                world.store.always(op, Step::Slow(ms(1), ms(1)));
            }
            world.store.always(Op::Watch, late_hints(&world, ms(late)));
            // Long enough that the next head subscribes.
            let leases = world.leases();
            let first = leases.lease("k").acquire().await.unwrap();
            let tasks = tokio::spawn({
                let leases = leases.clone();
                async move { all_at_once(&[leases], 200, ms(hold)).await }
            });
            tokio::time::sleep(ms(100)).await;
            assert_eq!(world.store.count(Op::Watch), 1);
            first.release().await.unwrap();
            tasks.await.unwrap();
            assert_eq!(counts(&world), [201, 201, 1], "{late} ms, held {hold} ms");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_costs_no_more_on_real_time() {
    let started = std::time::Instant::now();
    let world = World::new();
    all_at_once(&[world.leases()], 2_000, Duration::ZERO).await;
    let [acquires, releases, subscriptions] = counts(&world);
    assert_eq!(releases, 2_000);
    // A machine that stands still makes leases long; each then costs a look.
    let stalls = usize::try_from(started.elapsed().as_secs()).unwrap();
    assert!(acquires <= 2_000 + 8 + stalls, "{acquires}");
    assert!(subscriptions <= 2 + stalls, "{subscriptions}");
}

#[tokio::test(start_paused = true)]
async fn two_that_take_turns_cost_no_more_than_many() {
    let world = World::new();
    let leases = world.leases();
    let turns = |leases: Leases| async move {
        for _ in 0..500 {
            let lease = leases.lease("k").acquire().await.unwrap();
            tokio::time::sleep(ms(1)).await;
            lease.release().await.unwrap();
        }
    };
    tokio::join!(turns(leases.clone()), turns(leases));
    assert_eq!(counts(&world), [1_000, 1_000, 0]);
}

#[tokio::test(start_paused = true)]
async fn clients_that_compete_cost_one_attempt_each_for_a_release_and_share_fairly() {
    for (late, hold) in [(0, 3), (5, 3), (2, 0), (1, 70)] {
        let world = World::new();
        for op in [Op::Acquire, Op::Release] {
            world.store.always(op, Step::Slow(ms(1), ms(1)));
        }
        world.store.always(Op::Watch, late_hints(&world, ms(late)));
        let clients = [world.leases(), world.other()];
        let served = all_at_once(&clients, 400, ms(hold)).await;
        let [acquires, releases, subscriptions] = counts(&world);
        let what = format!("{late} ms, held {hold} ms");
        assert_eq!(releases, 400, "{what}");
        assert!(acquires <= 400 * clients.len() + 4, "{what}: {acquires}");
        assert!(subscriptions <= 4, "{what}: {subscriptions}");
        // While both have waiters.
        let first = served[..200].iter().filter(|n| **n == 0).count();
        assert!((50..=150).contains(&first), "{what}: {first} of 200");
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_hold_is_followed_by_its_renewals_instead_of_looks() {
    let world = World::new();
    let leases = world.leases();
    let holder = leases.lease("k").ttl(secs(9)).acquire().await.unwrap();
    let next = waiter(&world, &leases);
    tokio::time::sleep(secs(120)).await;
    assert_eq!(counts(&world), [1, 0, 1]);
    let start = world.now();
    holder.release().await.unwrap();
    assert_eq!(next.await.unwrap(), start);
    assert_eq!(counts(&world), [2, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn zero_wait_is_one_attempt_though_the_client_knows_the_answer() {
    let world = World::new();
    let leases = world.leases();
    let holder = leases.lease("k").acquire().await.unwrap();
    let _waiter = waiter(&world, &leases);
    tokio::time::sleep(ms(10)).await;
    for n in 2..10 {
        let zero = leases.lease("k").wait(Duration::ZERO).acquire();
        assert!(matches!(zero.await, Err(Error::Contended { .. })));
        assert_eq!(world.store.count(Op::Acquire), 2 * n - 2);
        let attempt = leases.lease("k").try_acquire().await.unwrap();
        assert!(matches!(attempt, Attempt::Held(of) if of.token == holder.token()));
        assert_eq!(world.store.count(Op::Acquire), 2 * n - 1);
    }
    assert_eq!(world.store.count(Op::Watch), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_one_attempt_is_known_to_the_waiters_too() {
    let world = World::new();
    let leases = world.leases();
    let holder = leases.lease("k").try_acquire().await.unwrap().lease();
    let next = waiter(&world, &leases);
    tokio::time::sleep(ms(30)).await;
    drop(holder);
    next.await.unwrap();
    assert_eq!(counts(&world), [2, 2, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_hints_over_our_own_lease_costs_a_bounded_number_of_calls() {
    let world = World::new();
    let storm = || futures_util::stream::repeat(()).boxed();
    world.store.always(Op::Watch, Step::Hints(Arc::new(storm)));
    let leases = world.leases();
    let _holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
    let waited = leases.lease("k").wait(secs(5)).acquire().await;
    waited.unwrap_err();
    let calls = world.store.calls().len();
    assert!(calls < 350, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn subscriptions_that_fail_or_end_over_our_own_lease_are_no_busy_loop() {
    let ends = || futures_util::stream::empty().boxed();
    for step in [
        Step::Fail(StoreErrorKind::Unavailable),
        Step::Panic,
        Step::LoseReply,
        Step::Hints(Arc::new(ends)),
    ] {
        let world = World::new();
        world.store.always(Op::Watch, step.clone());
        let leases = world.leases();
        let holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
        let next = waiter(&world, &leases);
        tokio::time::sleep(secs(20)).await;
        let calls = world.store.calls().len();
        assert!(calls < 60, "{step:?}: {calls}");
        let start = world.now();
        holder.release().await.unwrap();
        assert_eq!(next.await.unwrap(), start, "{step:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_to_leave_ends_the_subscription() {
    let world = World::new();
    let alive = Arc::new(());
    let counted = Arc::clone(&alive);
    let hints = move || {
        let alive = Arc::clone(&counted);
        futures_util::stream::unfold(alive, |alive| async move {
            futures_util::future::pending::<()>().await;
            Some(((), alive))
        })
        .boxed()
    };
    world.store.always(Op::Watch, Step::Hints(Arc::new(hints)));
    let leases = world.leases();
    let before = Arc::strong_count(&alive);
    let holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
    let waiters: Vec<_> = (0..3).map(|_| waiter(&world, &leases)).collect();
    tokio::time::sleep(ms(100)).await;
    assert_eq!(Arc::strong_count(&alive), before + 1);
    for waiter in waiters {
        waiter.abort();
        let _ = waiter.await;
    }
    // The lease stays, and nobody waits for it.
    assert_eq!(Arc::strong_count(&alive), before);
    holder.release().await.unwrap();
}
