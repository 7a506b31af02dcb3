//! From when a grant counts, and until when.

use std::sync::Arc;

use lease_core::{Attempt, DriftAllowance, Error, StoreErrorKind, Ttl};

use crate::support::{Op, Step, TestClock, World, ms, secs};

/// What the contract says of the default allowance.
fn validity(ttl: Ttl) -> std::time::Duration {
    ttl.get() - ttl.get() / 100 - ms(2)
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_send_plus_ttl_minus_drift_exactly() {
    let world = World::new();
    let leases = world.leases();
    for (n, ttl) in [50, 51, 99, 1_000, 3_000, 86_400_000, 366 * 86_400_000]
        .into_iter()
        .enumerate()
    {
        let sent = world.now();
        let lease = leases.lease(format!("k{n}")).ttl(ms(ttl)).acquire().await;
        let lease = lease.unwrap();
        let valid = validity(Ttl::new(ms(ttl)).unwrap());
        assert_eq!(lease.deadline(), sent.after(valid));
        assert_eq!(lease.remaining(), valid);
        tokio::time::sleep(ms(7)).await;
        assert_eq!(lease.remaining(), valid - ms(7));
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_allowance_of_the_callers_is_taken_off_never_added() {
    let world = World::new();
    let wide = DriftAllowance::new(100_000, ms(10)).unwrap();
    let leases = world.builder().drift_allowance(wide).build();
    let lease = leases.lease("k").ttl(secs(1)).acquire().await.unwrap();
    assert_eq!(lease.remaining(), ms(890));
}

#[tokio::test(start_paused = true)]
async fn a_delay_on_the_way_there_or_back_moves_no_deadline() {
    for (there, back) in [(0, 400), (400, 0), (200, 200), (0, 2_900)] {
        let world = World::new();
        world
            .store
            .next(Op::Acquire, [Step::Slow(ms(there), ms(back))]);
        let sent = world.now();
        let lease = world
            .leases()
            .lease("k")
            .ttl(secs(3))
            .acquire()
            .await
            .unwrap();
        assert_eq!(world.now(), sent.after(ms(there + back)));
        assert_eq!(lease.deadline(), sent.after(ms(2_968)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_after_its_own_deadline_is_abandoned() {
    let world = World::new();
    let clock = Arc::clone(&world.clock);
    // The executor is blocked while the reply lies in the socket.
    let late = Step::ApplyThen(Arc::new(move || clock.jump(ms(2_990))));
    world.store.next(Op::Acquire, [late]);
    let leases = world.leases();
    let refused = leases.lease("k").ttl(secs(3)).try_acquire().await;
    let Err(Error::Store(error)) = refused else {
        panic!("handed out: {refused:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    tokio::time::sleep(ms(1)).await;
    assert_eq!(
        world.words(),
        ["attempt", "granted_too_late", "gave_up", "abandoned"]
    );
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_outlives_the_grant_is_not_waited_for() {
    let world = World::new();
    world.store.next(Op::Acquire, [Step::Slow(ms(0), secs(60))]);
    let start = world.now();
    let refused = world.leases().lease("k").ttl(secs(3)).try_acquire().await;
    assert!(matches!(refused, Err(Error::Store(e)) if e.is_unknown_outcome()));
    assert!(world.now().since(start) <= ms(2_970));
    tokio::time::sleep(ms(1)).await;
    assert_eq!(world.store.count(Op::Abandon), 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_goes_on_with_a_new_owner_after_a_late_grant() {
    let world = World::new();
    let clock = Arc::clone(&world.clock);
    let late = Step::ApplyThen(Arc::new(move || clock.jump(ms(2_990))));
    world.store.next(Op::Acquire, [late]);
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let calls = world.store.calls_of(Op::Acquire);
    assert_ne!(calls[0].owner, calls[1].owner);
    assert_eq!(Some(lease.owner()), calls[1].owner);
    assert_eq!(world.store.calls_of(Op::Abandon)[0].owner, calls[0].owner);
    assert_eq!(lease.check().unwrap(), lease.token());
}

#[tokio::test(start_paused = true)]
async fn the_deadline_moves_with_each_renewal_after_a_slow_first_acquire() {
    let world = World::new();
    world
        .store
        .next(Op::Acquire, [Step::Slow(ms(300), ms(500))]);
    world.store.always(Op::Renew, Step::Slow(ms(20), ms(30)));
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(1))
        .acquire()
        .await
        .unwrap();
    let mut last = lease.deadline();
    for _ in 0..20 {
        tokio::time::sleep(ms(500)).await;
        assert!(lease.deadline() > last);
        last = lease.deadline();
        let sent = world.store.calls_of(Op::Renew);
        // From the send of a renewal, and not of one long ago.
        let from = sent.iter().find(|call| call.sent.after(ms(988)) == last);
        assert!(world.now().since(from.unwrap().sent) <= ms(400));
    }
    assert!(world.store.count(Op::Renew) >= 20);
    let held = world.other().lease("k").try_acquire().await.unwrap();
    assert!(matches!(held, Attempt::Held(_)));
}

#[tokio::test(start_paused = true)]
async fn a_store_on_another_wall_clock_moves_no_deadline() {
    // The holder never reads a wall clock, and the store's only makes tokens.
    let mut seen = Vec::new();
    for epoch in [secs(0), secs(1_700_000_000), secs(4_000_000_000)] {
        let world = World::new();
        let clock: Arc<dyn lease_core::Clock> = Arc::<TestClock>::clone(&world.clock);
        let store = lease_core::MemoryStore::with_clock(Arc::clone(&clock), epoch);
        let leases = lease_core::Leases::builder(Arc::new(store))
            .clock(clock)
            .build();
        let sent = world.now();
        let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
        seen.push(lease.deadline().since(sent));
    }
    assert_eq!(seen, [ms(2_968); 3]);
}
