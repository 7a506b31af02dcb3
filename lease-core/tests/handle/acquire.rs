//! Asking for a key: limits, failures, refusals, and what is left behind.

use lease_core::{
    AcquireOutcome, Attempt, Error, InvalidInput, RefusedReason, StoreErrorKind, Token,
};
use tokio_util::sync::CancellationToken;

use crate::support::{Op, Step, World, ms, secs};

fn refused(reason: RefusedReason) -> Step {
    Step::Acquired(AcquireOutcome::Refused(reason))
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_limit_and_says_who_holds() {
    let world = World::new();
    let _holder = world
        .other()
        .lease("k")
        .label("them")
        .acquire()
        .await
        .unwrap();
    let start = world.now();
    let leases = world.leases();
    for until in [false, true] {
        let acquire = leases.lease("k");
        let start = world.now();
        let acquire = if until {
            acquire.wait_until(start.after(secs(4)))
        } else {
            acquire.wait(secs(4))
        };
        let error = acquire.acquire().await.unwrap_err();
        let Error::Contended {
            waited,
            holder,
            store,
            ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert!(waited >= secs(4) && waited <= ms(4_002), "{waited:?}");
        assert_eq!(holder.unwrap().label.as_str(), "them");
        assert!(store.is_none());
    }
    assert!(world.now().since(start) <= ms(8_004));
}

#[tokio::test(start_paused = true)]
async fn no_wait_is_exactly_one_attempt() {
    let world = World::new();
    let leases = world.leases();
    let _holder = world.other().lease("k").acquire().await.unwrap();
    for n in 1..=3 {
        let start = world.now();
        let asked = leases.lease("k");
        match n {
            1 => {
                let held = asked.try_acquire().await.unwrap();
                assert!(matches!(held, Attempt::Held(_)));
            }
            2 => {
                let error = asked.wait(ms(0)).acquire().await.unwrap_err();
                assert!(matches!(
                    error,
                    Error::Contended {
                        holder: Some(_),
                        ..
                    }
                ));
            }
            _ => {
                let error = asked.wait_until(start).acquire().await.unwrap_err();
                assert!(matches!(error, Error::Contended { .. }));
            }
        }
        assert_eq!(world.now(), start);
        assert_eq!(world.store.count(Op::Acquire), 1 + n);
    }
    assert_eq!(world.store.count(Op::Watch), 0);
    // Each had one attempt, and that was answered.
    tokio::time::sleep(secs(1)).await;
    assert_eq!(world.store.count(Op::Abandon), 0);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_ends_the_wait_at_once() {
    for kind in [StoreErrorKind::Refusing, StoreErrorKind::InvalidInput] {
        let world = World::new();
        let start = world.now();
        world.store.always(Op::Acquire, Step::Fail(kind));
        let error = world.leases().lease("k").acquire().await.unwrap_err();
        assert!(matches!(error, Error::Store(e) if e.kind() == kind));
        assert_eq!((world.now(), world.store.count(Op::Acquire)), (start, 1));
        tokio::time::sleep(ms(1)).await;
        assert_eq!(world.store.count(Op::Abandon), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_during_a_wait_is_waited_out() {
    for kind in [StoreErrorKind::Unavailable, StoreErrorKind::UnknownOutcome] {
        let world = World::new();
        let leases = world.leases();
        let holder = world
            .other()
            .lease("k")
            .ttl(secs(3))
            .acquire()
            .await
            .unwrap();
        let waiter = tokio::spawn(leases.lease("k").ttl(secs(3)).acquire());
        tokio::time::sleep(ms(100)).await;
        world.store.always(Op::Acquire, Step::Fail(kind));
        world.store.always(Op::Watch, Step::Fail(kind));
        holder.release().await.unwrap();
        tokio::time::sleep(secs(60)).await;
        assert!(!waiter.is_finished());
        let calls = world.store.count(Op::Acquire);
        assert!(calls < 80, "{calls} in a minute");
        world.store.always(Op::Acquire, Step::Pass);
        let back = world.now();
        let lease = waiter.await.unwrap().unwrap();
        assert!(world.now().since(back) <= secs(2));
        lease.check().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_never_there_is_an_error_after_the_callers_patience() {
    for kind in [StoreErrorKind::Unavailable, StoreErrorKind::UnknownOutcome] {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Fail(kind));
        let start = world.now();
        let acquire = world.leases().lease("k").first_answer_within(secs(5));
        let error = acquire.acquire().await.unwrap_err();
        assert!(matches!(error, Error::Store(e) if e.kind() == kind));
        let took = world.now().since(start);
        assert!(took >= secs(5) && took <= ms(5_002), "{took:?}");
        tokio::time::sleep(ms(1)).await;
        assert_eq!(world.store.count(Op::Abandon), 1);
    }
    // Silence is no answer either.
    let world = World::new();
    world.store.always(Op::Acquire, Step::LoseRequest);
    let acquire = world
        .leases()
        .lease("k")
        .ttl(secs(60))
        .first_answer_within(secs(5));
    assert!(matches!(acquire.acquire().await, Err(Error::Store(e)) if e.is_unknown_outcome()));
    // One answer is enough, however long the outage after it.
    let world = World::new();
    let _holder = world.other().lease("k").acquire().await.unwrap();
    let acquire = world.leases().lease("k").first_answer_within(secs(5));
    let waiter = tokio::spawn(acquire.acquire());
    tokio::time::sleep(ms(10)).await;
    world
        .store
        .always(Op::Acquire, Step::Fail(StoreErrorKind::Unavailable));
    tokio::time::sleep(secs(60)).await;
    assert!(!waiter.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_silence_at_the_end_of_a_wait_hides_no_reason_that_was_given_before() {
    for refuses in [true, false] {
        let world = World::new();
        let reason = match refuses {
            true => StoreErrorKind::Unavailable,
            false => StoreErrorKind::UnknownOutcome,
        };
        world.store.next(Op::Acquire, [Step::Fail(reason)]);
        world.store.always(Op::Acquire, Step::LoseRequest);
        let first = world.leases().lease("other").wait(ms(1)).acquire().await;
        let Err(Error::Store(first)) = first else {
            panic!("{first:?}");
        };
        world.store.next(Op::Acquire, [Step::Fail(reason)]);
        let acquire = world.leases().lease("k").first_answer_within(secs(5));
        let last = acquire.acquire().await;
        assert!(
            matches!(&last, Err(Error::Store(e)) if e.message() == first.message()),
            "{last:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_met_nothing_but_failures_says_so() {
    for kind in [StoreErrorKind::Unavailable, StoreErrorKind::UnknownOutcome] {
        let world = World::new();
        world.store.always(Op::Acquire, Step::Fail(kind));
        let error = world.leases().lease("k").wait(secs(5)).acquire().await;
        assert!(matches!(error, Err(Error::Store(e)) if e.kind() == kind));
        // With an answer among them it is contention, and the failure its
        // source.
        let world = World::new();
        let _holder = world.other().lease("k").acquire().await.unwrap();
        world.store.next(Op::Acquire, [Step::Pass, Step::Pass]);
        world.store.always(Op::Acquire, Step::Fail(kind));
        let error = world
            .leases()
            .lease("k")
            .wait(secs(9))
            .acquire()
            .await
            .unwrap_err();
        assert!(matches!(&error, Error::Contended { store: Some(e), .. } if e.kind() == kind));
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_which_nobody_held_it_ends_with_the_stores_failure() {
    let failed = Step::Fail(StoreErrorKind::UnknownOutcome);
    let world = World::new();
    // As a store that takes back what it could not confirm: each failure burns
    // its owner.
    let burnt = [failed.clone(), refused(RefusedReason::Abandoned)];
    let steps = std::iter::repeat_n(burnt, 1_000).flatten();
    world.store.next(Op::Acquire, steps);
    let acquire = world.leases().lease("k").wait(secs(4));
    let error = acquire.acquire().await.unwrap_err();
    assert!(
        matches!(&error, Error::Store(e) if e.is_unknown_outcome()),
        "{error:?}"
    );
    // A quarantine is no holder, and the store's last word counts.
    let remaining = ms(10);
    let quarantine = refused(RefusedReason::Quarantine { remaining });
    let world = World::new();
    world.store.next(Op::Acquire, [quarantine.clone()]);
    world.store.always(Op::Acquire, failed.clone());
    let acquire = world.leases().lease("k").wait(secs(4));
    let error = acquire.acquire().await.unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error:?}");
    let world = World::new();
    world.store.next(Op::Acquire, [failed]);
    world.store.always(Op::Acquire, quarantine);
    let acquire = world.leases().lease("k").wait(secs(4));
    let error = acquire.acquire().await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_burnt_owner_is_replaced() {
    for reason in [RefusedReason::Abandoned, RefusedReason::Revoked] {
        let world = World::new();
        world.store.next(Op::Acquire, [refused(reason.clone())]);
        let lease = world.leases().lease("k").acquire().await.unwrap();
        let calls = world.store.calls_of(Op::Acquire);
        assert_ne!(calls[0].owner, calls[1].owner);
        assert_eq!(calls[1].owner, Some(lease.owner()));
        assert!(!world.words().contains(&"gave_up"));
        // Without a wait it is the caller's to know.
        world.store.next(Op::Acquire, [refused(reason.clone())]);
        let error = world.leases().lease("k2").try_acquire().await.unwrap_err();
        assert!(matches!(error, Error::Refused { reason: r, .. } if r == reason));
    }
}

#[tokio::test(start_paused = true)]
async fn a_quarantine_is_waited_out_or_named() {
    let world = World::new();
    let start = world.now();
    let quarantine = |left| {
        refused(RefusedReason::Quarantine {
            remaining: secs(left),
        })
    };
    world
        .store
        .next(Op::Acquire, [quarantine(7), quarantine(2)]);
    let leases = world.leases();
    let _lease = leases.lease("k").acquire().await.unwrap();
    let took = world.now().since(start);
    assert!(took >= secs(7) && took <= ms(7_010), "{took:?}");
    world.store.always(Op::Acquire, quarantine(50));
    for wait in [0, 8] {
        let error = leases
            .lease("k2")
            .wait(secs(wait))
            .acquire()
            .await
            .unwrap_err();
        let Error::Refused {
            reason: RefusedReason::Quarantine { .. },
            ..
        } = error
        else {
            panic!("{error:?}");
        };
    }
    // One that claims to be over, and is not, is not asked without a pause.
    world.store.always(Op::Acquire, quarantine(0));
    let before = world.store.count(Op::Acquire);
    leases
        .lease("k3")
        .wait(secs(5))
        .acquire()
        .await
        .unwrap_err();
    let calls = world.store.count(Op::Acquire) - before;
    assert!(calls < 400, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_granted_for_good_ends_the_wait() {
    let high_water = Token::MAX;
    for reason in [
        RefusedReason::TokensExhausted,
        RefusedReason::BelowMark { high_water },
    ] {
        let world = World::new();
        world.store.always(Op::Acquire, refused(reason.clone()));
        let error = world.leases().lease("k").acquire().await.unwrap_err();
        assert!(matches!(error, Error::Refused { reason: r, .. } if r == reason));
        assert_eq!(world.store.count(Op::Acquire), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_token_of_a_wait_does_not_end_the_lease() {
    let world = World::new();
    let cancel = CancellationToken::new();
    let acquire = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .cancel_with(cancel.clone());
    let lease = acquire.acquire().await.unwrap();
    cancel.cancel();
    tokio::time::sleep(secs(9)).await;
    lease.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_named_before_anything_is_sent() {
    let world = World::new();
    let leases = world.leases();
    let empty = leases.lease("").acquire().await.unwrap_err();
    assert!(matches!(empty, Error::Invalid(InvalidInput::KeyEmpty)));
    for ttl in [ms(0), ms(49), secs(400 * 86_400)] {
        let error = leases.lease("k").ttl(ttl).try_acquire().await.unwrap_err();
        assert!(matches!(
            error,
            Error::Invalid(InvalidInput::TtlOutOfRange { .. })
        ));
    }
    let long = leases.lease("k").label("x".repeat(257)).acquire().await;
    assert!(matches!(
        long,
        Err(Error::Invalid(InvalidInput::LabelTooLong { .. }))
    ));
    for zero in [
        leases.lease("k").max_hold(ms(0)),
        leases.lease("k").progress_within(ms(0)),
    ] {
        let error = zero.acquire().await.unwrap_err();
        assert!(matches!(
            error,
            Error::Invalid(InvalidInput::ZeroDuration { .. })
        ));
    }
    assert!(world.store.calls().is_empty());
}
