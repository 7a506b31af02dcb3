//! How a holder learns that it may no longer act.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lease_core::{LostReason, StoreErrorKind};

use crate::support::{Op, Step, TestClock, World, is_unconfirmed, ms, secs};

/// Says when it is dropped.
struct Guard(Arc<AtomicBool>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn check_is_exact_to_the_nanosecond_although_no_timer_has_run() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    world
        .clock
        .jump(ms(2_968) - std::time::Duration::from_nanos(1));
    assert_eq!(lease.check().unwrap(), lease.token());
    world.clock.jump(std::time::Duration::from_nanos(1));
    // Not one await since the acquisition: nothing but `check` has run.
    assert!(is_unconfirmed(&lease.check().unwrap_err()));
    assert!(lease.cancellation_token().is_cancelled());
    assert!(is_unconfirmed(&lease.lost().await));
    // For good, whatever renewals may say later.
    tokio::time::sleep(secs(9)).await;
    lease.check().unwrap_err();
    assert_eq!(world.store.count(Op::Renew), 0);
    assert_eq!(world.words().iter().filter(|w| **w == "lost").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_suspended_has_lost_its_lease() {
    let world = World::new();
    let holder = TestClock::new();
    let leases = world
        .builder()
        .clock(Arc::<TestClock>::clone(&holder))
        .build();
    let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    tokio::time::sleep(secs(10)).await;
    lease.check().unwrap();
    holder.jump(secs(3_600));
    assert!(is_unconfirmed(&lease.check().unwrap_err()));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_from_before_a_suspend_does_not_revive_the_lease() {
    let world = World::new();
    let clock = Arc::clone(&world.clock);
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    // Applied, then suspended; its reply still lies in the socket.
    world.store.next(
        Op::Renew,
        [Step::ApplyThen(Arc::new(move || clock.jump(secs(100))))],
    );
    let lost = lease.lost().await;
    assert!(is_unconfirmed(&lost));
    assert!(lease.check().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_quiet_worker_keeps_its_lease() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let worked = lease.run(tokio::time::sleep(secs(15))).await;
    worked.unwrap();
    lease.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn run_drops_the_work_at_loss() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let deadline = lease.deadline();
    world.store.always(Op::Renew, Step::LoseRequest);
    let dropped = Arc::new(AtomicBool::new(false));
    let guard = Guard(Arc::clone(&dropped));
    let lost = lease
        .run(async move {
            let _guard = guard;
            std::future::pending::<()>().await
        })
        .await;
    assert!(is_unconfirmed(&lost.unwrap_err()));
    assert!(dropped.load(Ordering::SeqCst));
    assert!(world.now().since(deadline) <= ms(2));
}

#[tokio::test(start_paused = true)]
async fn run_refuses_a_result_that_came_after_the_deadline() {
    let world = World::new();
    let clock = Arc::clone(&world.clock);
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let late = lease.run(async move { clock.jump(secs(3)) }).await;
    assert!(is_unconfirmed(&late.unwrap_err()));
    // And does not begin once it is lost.
    let begun = AtomicBool::new(false);
    let again = lease
        .run(async { begun.store(true, Ordering::SeqCst) })
        .await;
    assert!(again.is_err() && !begun.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_fires_a_margin_before_the_deadline_and_not_before() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let quiet = tokio::time::timeout(secs(30), lease.unconfirmed(secs(1))).await;
    assert!(quiet.is_err(), "renewals were confirmed all the time");
    world.store.always(Op::Renew, Step::LoseRequest);
    lease.unconfirmed(ms(800)).await;
    let left = lease.remaining();
    assert!(left <= ms(800) && left >= ms(798), "{left:?}");
    // It may yet recover.
    world.store.always(Op::Renew, Step::Pass);
    tokio::time::sleep(secs(30)).await;
    lease.check().unwrap();
    // At once for a margin that no lease of this TTL has, or once lost.
    lease.unconfirmed(secs(3)).await;
    world.clock.jump(secs(3));
    lease.check().unwrap_err();
    lease.unconfirmed(ms(0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_maximum_hold_ends_a_lease_that_is_renewed_well() {
    let world = World::new();
    let leases = world.leases();
    let start = world.now();
    let lease = leases
        .lease("k")
        .ttl(secs(3))
        .max_hold(secs(10))
        .acquire()
        .await;
    let lease = lease.unwrap();
    let lost = lease.lost().await;
    assert!(matches!(lost.reason, LostReason::MaxHold { limit } if limit == secs(10)));
    assert!(world.now().since(start) - secs(10) <= ms(2));
    // Nothing is renewed any more: even if its handle hangs for ever, the key
    // is free within a TTL.
    let renewed = world.store.count(Op::Renew);
    tokio::time::sleep(secs(3)).await;
    assert_eq!(world.store.count(Op::Renew), renewed);
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_progress_loses_its_lease_and_one_with_it_does_not() {
    let world = World::new();
    let leases = world.leases();
    let lease = leases
        .lease("k")
        .ttl(secs(3))
        .progress_within(secs(5))
        .acquire()
        .await;
    let lease = lease.unwrap();
    for _ in 0..20 {
        tokio::time::sleep(ms(4_900)).await;
        lease.progress();
        lease.check().unwrap();
    }
    let start = world.now();
    let lost = lease.lost().await;
    assert!(matches!(lost.reason, LostReason::NoProgress { limit } if limit == secs(5)));
    assert!(world.now().since(start) - secs(5) <= ms(2));
    lease.progress();
    lease.check().unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn both_limits_are_seen_by_check_before_any_timer_runs() {
    for progress in [false, true] {
        let world = World::new();
        let acquire = world.leases().lease("k").ttl(secs(3_600));
        let acquire = if progress {
            acquire.progress_within(secs(5))
        } else {
            acquire.max_hold(secs(5))
        };
        let lease = acquire.acquire().await.unwrap();
        world.clock.jump(ms(4_999));
        lease.check().unwrap();
        assert_eq!(lease.remaining(), ms(1));
        world.clock.jump(ms(1));
        let lost = lease.check().unwrap_err();
        let word = if progress { "no_progress" } else { "max_hold" };
        assert_eq!(lost.reason.as_str(), word);
    }
}

#[tokio::test(start_paused = true)]
async fn a_revocation_is_learnt_with_the_next_renewal() {
    let world = World::new();
    let leases = world.leases();
    let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    let above = lease.token().next().unwrap();
    let start = world.now();
    leases
        .fence("k", above, lease_core::FenceWhen::AtExpiry)
        .await
        .unwrap();
    assert_eq!(lease.lost().await.reason.as_str(), "revoked");
    assert!(world.now().since(start) <= ms(1_001));
    assert!(!world.is_free("k").await);
    // A waiter gets it at the old expiry, above the fence.
    let next = world.other().lease("k").acquire().await.unwrap();
    assert!(next.token() > above && world.now().since(start) <= ms(3_010));
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_a_campaign_goes_on() {
    let world = World::new();
    let leases = world.leases();
    let mut tokens = Vec::new();
    for _ in 0..5 {
        let lease = leases.lease("leader").ttl(secs(3)).acquire().await.unwrap();
        tokens.push(lease.token());
        world
            .store
            .always(Op::Renew, Step::Fail(StoreErrorKind::Unavailable));
        lease.lost().await;
        world.store.always(Op::Renew, Step::Pass);
    }
    assert!(tokens.is_sorted_by(|a, b| a < b));
}

#[tokio::test(start_paused = true)]
async fn the_signal_is_a_child_and_a_release_does_not_fire_it() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let signal = lease.cancellation_token();
    signal.cancel();
    lease.check().unwrap();
    let signal = lease.cancellation_token();
    lease.release().await.unwrap();
    tokio::time::sleep(secs(9)).await;
    assert!(!signal.is_cancelled());
}
