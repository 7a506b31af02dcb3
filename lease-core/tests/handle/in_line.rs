//! Waiters at a store that serves them in order.

use lease_core::{AcquireOutcome, Attempt, Error, RefusedReason};

use crate::support::{Op, Step, World, ms, secs};

fn in_line(ahead: u64, left_ms: u64) -> Step {
    let remaining = ms(left_ms);
    Step::Acquired(AcquireOutcome::Refused(RefusedReason::InLine {
        ahead,
        remaining,
    }))
}

fn in_order() -> World {
    let world = World::new();
    world.store.in_order();
    world
}

#[tokio::test(start_paused = true)]
async fn a_waiter_in_line_looks_when_its_turn_comes_and_keeps_its_owner() {
    let world = in_order();
    let (start, leases) = (world.now(), world.leases());
    // Before it sleeps it subscribes, and tries once more.
    let steps = [in_line(2, 2_000), in_line(2, 2_000), in_line(1, 300)];
    world.store.next(Op::Acquire, steps);
    let lease = leases.lease("k").acquire().await.unwrap();
    let took = world.now().since(start);
    assert!(took >= ms(2_300) && took <= ms(2_320), "{took:?}");
    let calls = world.store.calls_of(Op::Acquire);
    assert_eq!(calls.len(), 4);
    assert!(calls.iter().all(|call| call.owner == Some(lease.owner())));
    assert!(calls.iter().all(|call| call.waits == Some(secs(5))));
    // That the key is kept for others is no holder, and nothing that failed.
    assert!(!world.words().contains(&"attempt_failed"));
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_has_come_is_looked_after_at_once_and_without_a_spin() {
    let world = in_order();
    let (start, leases) = (world.now(), world.leases());
    world
        .store
        .next(Op::Acquire, [in_line(1, 0), in_line(1, 0)]);
    let lease = leases.lease("k").acquire().await.unwrap();
    assert!(world.now().since(start) <= ms(5));
    lease.release().await.unwrap();
    let before = world.store.count(Op::Acquire);
    world.store.always(Op::Acquire, in_line(1, 0));
    let acquire = leases.lease("k").wait(secs(1)).acquire();
    let error = acquire.await.unwrap_err();
    // Waiting for others is no refusal.
    let contended = matches!(error, Error::Contended { holder: None, .. });
    assert!(contended, "{error:?}");
    let looks = world.store.count(Op::Acquire) - before;
    assert!((20..200).contains(&looks), "{looks}");
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_leaves_the_line_even_after_one_attempt() {
    for keeps in [false, true] {
        let world = World::new();
        let holder = world.other().lease("k").acquire().await.unwrap();
        if keeps {
            world.store.in_order();
        }
        // No word of the store's comes again: the subscription hangs.
        let hangs = Step::LoseRequest;
        world.store.always(Op::Watch, hangs);
        let acquire = world.leases().lease("k").wait(ms(20)).acquire();
        let error = acquire.await.unwrap_err();
        assert!(matches!(error, Error::Contended { .. }), "{error:?}");
        tokio::time::sleep(ms(5)).await;
        let calls = world.store.calls_of(Op::Acquire);
        assert_eq!(calls.len(), 2);
        let abandoned = world.store.calls_of(Op::Abandon);
        assert_eq!(abandoned.len(), usize::from(keeps));
        assert!(abandoned.iter().all(|call| call.owner == calls[1].owner));
        holder.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_takes_no_place_and_leaves_none() {
    let world = in_order();
    let holder = world.other().lease("k").acquire().await.unwrap();
    let leases = world.leases();
    let attempt = leases.lease("k").try_acquire().await.unwrap();
    assert!(matches!(attempt, Attempt::Held(_)));
    let error = leases.lease("k").wait(secs(0)).acquire().await.unwrap_err();
    assert!(matches!(error, Error::Contended { .. }), "{error:?}");
    tokio::time::sleep(ms(5)).await;
    let calls = world.store.calls_of(Op::Acquire);
    assert!(calls[1..].iter().all(|call| call.waits.is_none()));
    assert_eq!((calls.len(), world.store.count(Op::Abandon)), (3, 0));
    holder.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_waits_beside_a_lease_of_its_own_client_stands_in_line_too() {
    for keeps in [false, true] {
        let world = World::new();
        if keeps {
            world.store.in_order();
        }
        let leases = world.leases();
        let holder = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
        let waits = tokio::spawn(leases.lease("k").acquire());
        tokio::time::sleep(ms(40)).await;
        // A lease that has just come may go as soon.
        assert_eq!(world.store.count(Op::Acquire), 1);
        tokio::time::sleep(ms(4_000)).await;
        assert_eq!(world.store.count(Op::Acquire), 1 + usize::from(keeps));
        tokio::time::sleep(secs(56)).await;
        // Its place lasts for as long as it asks every five seconds.
        let looks = world.store.count(Op::Acquire) - 1;
        assert!((11..=13).contains(&looks), "{looks}");
        let before = world.store.count(Op::Acquire);
        holder.release().await.unwrap();
        let lease = waits.await.unwrap().unwrap();
        assert_eq!(world.store.count(Op::Acquire), before + 1);
        lease.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_burnt_owner_loses_its_place_and_the_wait_goes_on() {
    let world = in_order();
    let leases = world.leases();
    let burnt = Step::Acquired(AcquireOutcome::Refused(RefusedReason::Revoked));
    let steps = [in_line(1, 20), in_line(1, 20), burnt];
    world.store.next(Op::Acquire, steps);
    let lease = leases.lease("k").acquire().await.unwrap();
    let calls = world.store.calls_of(Op::Acquire);
    assert_ne!(calls[0].owner, Some(lease.owner()));
    tokio::time::sleep(ms(5)).await;
    assert_eq!(world.store.calls_of(Op::Abandon)[0].owner, calls[0].owner);
    assert!(!world.words().contains(&"gave_up"));
    lease.release().await.unwrap();
}
