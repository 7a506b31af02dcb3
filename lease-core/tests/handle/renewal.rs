//! When renewals go out, and what becomes of a lease when they fail.

use lease_core::{Attempt, EventKind, LostCause, LostReason, Moment, RenewOutcome, StoreErrorKind};

use crate::support::{Op, Step, World, is_unconfirmed, kinds, ms, secs};

/// The longest that a timer on whole milliseconds may be late.
fn about(at: Moment, expected: Moment) -> bool {
    at >= expected && at.since(expected) <= ms(2)
}

#[tokio::test(start_paused = true)]
async fn a_renewal_is_due_a_third_of_the_ttl_after_the_confirmed_send() {
    let world = World::new();
    world
        .store
        .next(Op::Acquire, [Step::Slow(ms(200), ms(300))]);
    let start = world.now();
    let _lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    tokio::time::sleep(secs(30)).await;
    let mut from = start;
    let sent = world.store.calls_of(Op::Renew);
    assert!((30..=35).contains(&sent.len()), "{}", sent.len());
    for call in sent {
        let after = call.sent.since(from);
        assert!(after >= ms(895) && after <= ms(1_001), "{after:?}");
        from = call.sent;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_held_for_ten_ttls_and_nobody_else_gets_in() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(ms(200))
        .acquire()
        .await
        .unwrap();
    let other = world.other();
    for _ in 0..100 {
        tokio::time::sleep(ms(20)).await;
        lease.check().unwrap();
        let seen = other.lease("k").try_acquire().await.unwrap();
        assert!(matches!(seen, Attempt::Held(_)));
    }
    assert!(world.store.count(Op::Renew) >= 30);
}

#[tokio::test(start_paused = true)]
async fn one_error_of_any_kind_loses_nothing_and_stops_nothing() {
    for kind in kinds() {
        for step in [Step::Fail(kind), Step::ApplyThenFail(kind)] {
            let world = World::new();
            let lease = world
                .leases()
                .lease("k")
                .ttl(secs(3))
                .acquire()
                .await
                .unwrap();
            world.store.next(Op::Renew, [Step::Pass, step]);
            tokio::time::sleep(secs(30)).await;
            lease.check().unwrap();
            assert!(world.store.count(Op::Renew) >= 31);
            assert_eq!(
                world
                    .words()
                    .iter()
                    .filter(|w| **w == "renewal_failed")
                    .count(),
                1
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn errors_in_a_row_are_outlived_when_the_store_comes_back_in_time() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    world
        .store
        .always(Op::Renew, Step::Fail(StoreErrorKind::Unavailable));
    tokio::time::sleep(ms(2_800)).await;
    lease.check().unwrap();
    let failed = world.store.count(Op::Renew);
    assert!((5..60).contains(&failed), "{failed}");
    world.store.always(Op::Renew, Step::Pass);
    tokio::time::sleep(secs(30)).await;
    lease.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_error_that_stays_ends_the_lease_at_the_deadline_and_says_why() {
    for kind in kinds() {
        let world = World::new();
        let lease = world
            .leases()
            .lease("k")
            .ttl(secs(3))
            .acquire()
            .await
            .unwrap();
        let deadline = lease.deadline();
        world.store.always(Op::Renew, Step::Fail(kind));
        let lost = lease.lost().await;
        assert!(about(world.now(), deadline));
        let LostReason::Unconfirmed {
            last_error: Some(error),
        } = lost.reason
        else {
            panic!("{lost:?}");
        };
        assert_eq!(error.kind(), kind);
        // Permanent or not, it was tried until the end.
        let calls = world.store.count(Op::Renew);
        assert!((5..60).contains(&calls), "{kind}: {calls}");
        tokio::time::sleep(secs(9)).await;
        assert_eq!(world.store.count(Op::Renew), calls);
    }
}

/// A pause between two attempts that is shorter than the window in which
/// renewals go out together must still be a pause.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_at_once_is_not_asked_without_a_pause() {
    for ttl in [50, 60, 100, 300] {
        let world = World::new();
        let lease = world
            .leases()
            .lease("k")
            .ttl(ms(ttl))
            .acquire()
            .await
            .unwrap();
        world
            .store
            .always(Op::Renew, Step::Fail(StoreErrorKind::Unavailable));
        lease.lost().await;
        let calls = world.store.count(Op::Renew);
        assert!((3..60).contains(&calls), "{ttl}: {calls}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_once_or_always_harms_only_its_own_request() {
    for step in [Step::Panic, Step::PanicAtOnce] {
        let world = World::new();
        let leases = world.leases();
        let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
        let long = leases
            .lease("long")
            .ttl(secs(3_600))
            .acquire()
            .await
            .unwrap();
        world.store.next(Op::Renew, [step.clone()]);
        tokio::time::sleep(secs(30)).await;
        lease.check().unwrap();
        let deadline = lease.deadline();
        world.store.always(Op::Renew, step);
        assert!(is_unconfirmed(&lease.lost().await));
        assert!(world.now() >= deadline);
        long.check().unwrap();
        // The keeper lives on: it still releases.
        world.store.always(Op::Renew, Step::Pass);
        long.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_gets_another_beside_it() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    world.store.next(Op::Renew, [Step::LoseRequest]);
    tokio::time::sleep(secs(2)).await;
    let calls = world.store.calls_of(Op::Renew);
    assert!(calls.len() >= 2);
    let apart = calls[1].sent.since(calls[0].sent);
    assert!(apart >= ms(499) && apart <= ms(502), "{apart:?}");
    assert_eq!(
        lease.deadline(),
        calls.last().unwrap().sent.after(ms(2_968))
    );
    tokio::time::sleep(secs(30)).await;
    lease.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_every_renewal_hangs_it_is_lost_at_the_deadline_and_never_later() {
    for step in [
        Step::LoseRequest,
        Step::LoseReply,
        Step::Slow(ms(0), secs(60)),
    ] {
        let world = World::new();
        let lease = world
            .leases()
            .lease("k")
            .ttl(secs(3))
            .acquire()
            .await
            .unwrap();
        let deadline = lease.deadline();
        world.store.always(Op::Renew, step);
        assert!(is_unconfirmed(&lease.lost().await));
        assert!(about(world.now(), deadline));
        assert!(lease.cancellation_token().is_cancelled());
        let calls = world.store.count(Op::Renew);
        assert!((4..=5).contains(&calls), "{calls}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_stores_word_lost_ends_it_at_once_and_for_good() {
    for cause in [
        LostCause::Expired,
        LostCause::TakenOver,
        LostCause::Released,
        LostCause::Revoked,
        LostCause::Unknown,
    ] {
        let world = World::new();
        let lease = world
            .leases()
            .lease("k")
            .ttl(secs(3))
            .acquire()
            .await
            .unwrap();
        let start = world.now();
        world
            .store
            .next(Op::Renew, [Step::Renewed(RenewOutcome::Lost(cause))]);
        let lost = lease.lost().await;
        assert!(world.now().since(start) <= ms(1_001));
        assert!(matches!(lost.reason, LostReason::Store(c) if c == cause));
        lease.check().unwrap_err();
        assert_eq!(lease.remaining(), ms(0));
        tokio::time::sleep(secs(9)).await;
        assert_eq!(world.store.count(Op::Renew), 1);
        // There is nothing to free, and the error says so.
        let error = crate::support::lost_of(lease.release().await.unwrap_err());
        assert!(matches!(error.reason, LostReason::Store(c) if c == cause));
        assert_eq!(world.store.count(Op::Release), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn replies_out_of_order_count_each_from_its_own_send() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    // The first takes until after the second was confirmed.
    world
        .store
        .next(Op::Renew, [Step::Slow(ms(0), ms(900)), Step::Pass]);
    tokio::time::sleep(ms(1_700)).await;
    let calls = world.store.calls_of(Op::Renew);
    assert_eq!(calls.len(), 2);
    let second = calls[1].sent.after(ms(2_968));
    assert_eq!(lease.deadline(), second);
    // Its reply comes; an older send takes nothing back.
    tokio::time::sleep(ms(300)).await;
    assert_eq!(lease.deadline(), second);
    lease.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_reply_of_the_first_counts_from_the_first_while_the_second_is_under_way() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    world
        .store
        .next(Op::Renew, [Step::Slow(ms(0), ms(700)), Step::LoseRequest]);
    tokio::time::sleep(ms(1_705)).await;
    let calls = world.store.calls_of(Op::Renew);
    assert_eq!(lease.deadline(), calls[0].sent.after(ms(2_968)));
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_moves_nothing_even_though_the_store_renewed() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let deadline = lease.deadline();
    world.store.next(Op::Renew, [Step::LoseReply]);
    world
        .store
        .always(Op::Renew, Step::Fail(StoreErrorKind::Unavailable));
    lease.lost().await;
    assert!(about(world.now(), deadline));
    // The store had lengthened it: nobody else gets in before that is over.
    assert!(!world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_the_next_lease_of_the_key_is_renewed_again() {
    let world = World::new();
    let leases = world.leases();
    let first = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    world
        .store
        .always(Op::Renew, Step::Fail(StoreErrorKind::Refusing));
    first.lost().await;
    world.store.always(Op::Renew, Step::Pass);
    let second = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    assert!(second.token() > first.token());
    drop(first);
    tokio::time::sleep(secs(30)).await;
    second.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn failures_are_counted_once_and_start_again_after_a_success() {
    let world = World::new();
    let _lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let fail = Step::Fail(StoreErrorKind::Unavailable);
    // One that hangs is told of once, not again when it is given up.
    world.store.next(
        Op::Renew,
        [fail.clone(), fail, Step::Pass, Step::LoseRequest],
    );
    tokio::time::sleep(secs(30)).await;
    let failures: Vec<u32> = world
        .events()
        .iter()
        .filter_map(|e| match e.kind {
            EventKind::RenewalFailed { failures, .. } => Some(failures),
            _ => None,
        })
        .collect();
    assert_eq!(failures, [1, 2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_its_silence_was_told_is_not_told_again_but_is_the_reason() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let late = |n| Step::SlowFail(ms(n), StoreErrorKind::Refusing);
    // Each is answered only after the next was sent.
    world.store.always(Op::Renew, late(700));
    let lost = lease.lost().await;
    let failed = world
        .words()
        .iter()
        .filter(|w| **w == "renewal_failed")
        .count();
    assert_eq!(failed, world.store.count(Op::Renew) - 1);
    let LostReason::Unconfirmed {
        last_error: Some(error),
    } = lost.reason
    else {
        panic!("{lost:?}");
    };
    assert_eq!(error.kind(), StoreErrorKind::Refusing);
}
