//! What an acquisition leaves behind: nothing that could block the key.

use lease_core::{
    AcquireOutcome, CancelReason, DriftAllowance, Error, Granted, InvalidInput, StoreErrorKind,
    Token,
};
use tokio_util::sync::CancellationToken;

use crate::support::{Op, Step, World, kinds, ms, secs};

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_retried_with_the_same_owner_by_a_waiter() {
    for step in [
        Step::LoseReply,
        Step::LoseRequest,
        Step::ApplyThenFail(StoreErrorKind::UnknownOutcome),
        Step::Panic,
        Step::PanicAtOnce,
    ] {
        let world = World::new();
        world.store.next(Op::Acquire, [step.clone(), step]);
        let lease = world
            .leases()
            .lease("k")
            .ttl(secs(3))
            .acquire()
            .await
            .unwrap();
        let calls = world.store.calls_of(Op::Acquire);
        assert_eq!(calls.len(), 3);
        assert!(calls.iter().all(|call| call.owner == Some(lease.owner())));
        // It may count only from the attempt that was answered.
        assert_eq!(lease.deadline(), calls[2].sent.after(ms(2_968)));
        // One of its requests may still land after the release.
        lease.release().await.unwrap();
        tokio::time::sleep(ms(1)).await;
        assert_eq!(world.store.calls_of(Op::Abandon)[0].owner, calls[0].owner);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_copy_of_an_acquire_cannot_block_the_key_after_the_release() {
    let world = World::new();
    let late = Step::FailThenApply(StoreErrorKind::UnknownOutcome, secs(5));
    world.store.next(Op::Acquire, [late]);
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    lease.release().await.unwrap();
    tokio::time::sleep(secs(6)).await;
    let copy = &world.store.calls_of(Op::Acquire)[0];
    assert!(copy.answer.contains("Abandoned"), "{}", copy.answer);
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_without_a_wait_is_abandoned_and_not_repeated() {
    for step in [
        Step::LoseReply,
        Step::LoseRequest,
        Step::ApplyThenFail(StoreErrorKind::UnknownOutcome),
        Step::FailThenApply(StoreErrorKind::UnknownOutcome, secs(5)),
        Step::Panic,
        Step::PanicAtOnce,
    ] {
        let world = World::new();
        world.store.next(Op::Acquire, [step]);
        let error = world.leases().lease("k").ttl(secs(3)).try_acquire().await;
        let Err(Error::Store(error)) = error else {
            panic!("{error:?}");
        };
        assert!(error.is_unknown_outcome());
        tokio::time::sleep(ms(1)).await;
        assert_eq!(world.store.count(Op::Acquire), 1);
        assert_eq!(world.store.count(Op::Abandon), 1);
        assert!(world.is_free("k").await);
        tokio::time::sleep(secs(6)).await;
        assert!(world.is_free("k").await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_of_which_the_store_sent_copies_is_abandoned_when_it_is_released() {
    for repeated in [false, true] {
        let world = World::new();
        let mut granted = Granted::new(Token::MIN);
        granted.repeated = repeated;
        let granted = AcquireOutcome::Granted(granted);
        world.store.next(Op::Acquire, [Step::Acquired(granted)]);
        let lease = world.leases().lease("k").acquire().await.unwrap();
        // The store knows nothing of it: what counts is what it is asked.
        let _ = lease.release().await;
        assert_eq!(world.store.count(Op::Abandon), usize::from(repeated));
    }
}

#[tokio::test(start_paused = true)]
async fn giving_up_after_several_attempts_is_abandoned() {
    let world = World::new();
    let _holder = world.other().lease("k").acquire().await.unwrap();
    world
        .leases()
        .lease("k")
        .wait(secs(1))
        .acquire()
        .await
        .unwrap_err();
    tokio::time::sleep(ms(1)).await;
    assert!(world.store.count(Op::Acquire) > 2);
    assert_eq!(world.store.count(Op::Abandon), 1);
    assert_eq!(
        world.store.calls_of(Op::Abandon)[0].owner,
        world.store.calls_of(Op::Acquire)[1].owner
    );
}

#[tokio::test(start_paused = true)]
async fn an_abandonment_is_repeated_until_the_store_takes_it() {
    for kind in kinds() {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::LoseReply]);
        world.store.next(
            Op::Abandon,
            [Step::Fail(kind), Step::LoseRequest, Step::Panic],
        );
        let leases = world.leases();
        leases
            .lease("k")
            .ttl(secs(600))
            .wait(ms(10))
            .acquire()
            .await
            .unwrap_err();
        tokio::time::sleep(secs(60)).await;
        let invalid = kind == StoreErrorKind::InvalidInput;
        assert_eq!(world.is_free("k").await, !invalid, "{kind}");
        let word = if invalid {
            "abandon_failed"
        } else {
            "abandoned"
        };
        assert!(world.words().contains(&word));
    }
}

#[tokio::test(start_paused = true)]
async fn an_abandonment_ends_when_no_request_can_be_under_way_any_more() {
    let world = World::new();
    world.store.next(Op::Acquire, [Step::LoseReply]);
    world
        .store
        .always(Op::Abandon, Step::Fail(StoreErrorKind::Refusing));
    world
        .leases()
        .lease("k")
        .wait(ms(10))
        .acquire()
        .await
        .unwrap_err();
    tokio::time::sleep(secs(700)).await;
    let calls = world.store.count(Op::Abandon);
    assert!((300..900).contains(&calls), "{calls}");
    assert_eq!(world.words().last(), Some(&"abandon_failed"));
    tokio::time::sleep(secs(700)).await;
    assert_eq!(world.store.count(Op::Abandon), calls);
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_token_ends_a_wait_and_what_was_sent_is_cleaned_up() {
    for step in [Step::Pass, Step::LoseReply, Step::LoseRequest] {
        let world = World::new();
        let leases = world.leases();
        let cancel = CancellationToken::new();
        let _holder = match step {
            Step::Pass => Some(world.other().lease("k").acquire().await.unwrap()),
            _ => None,
        };
        world.store.always(Op::Acquire, step);
        let acquire = leases.lease("k").ttl(secs(60)).cancel_with(cancel.clone());
        let waiter = tokio::spawn(acquire.acquire());
        tokio::time::sleep(secs(2)).await;
        cancel.cancel();
        let error = waiter.await.unwrap().unwrap_err();
        let why = CancelReason::Token;
        assert!(matches!(error, Error::Cancelled { why: w, .. } if w == why));
        tokio::time::sleep(ms(1)).await;
        assert_eq!(world.store.count(Op::Abandon), 1);
        // One that has fired already: nothing is sent at all.
        let sent = world.store.calls().len();
        for _ in 0..2 {
            let error = leases
                .lease("k")
                .cancel_with(cancel.clone())
                .acquire()
                .await;
            assert!(matches!(error, Err(Error::Cancelled { .. })));
        }
        let error = leases.lease("k").cancel_with(cancel).try_acquire().await;
        assert!(matches!(error, Err(Error::Cancelled { .. })));
        tokio::time::sleep(ms(1)).await;
        assert_eq!(world.store.calls().len(), sent);
    }
}

#[tokio::test(start_paused = true)]
async fn abandons_that_cannot_succeed_do_not_keep_others_waiting() {
    let world = World::new();
    let leases = world.leases();
    world.store.gone("dead/");
    world.store.always(
        Op::Acquire,
        Step::ApplyThenFail(StoreErrorKind::UnknownOutcome),
    );
    // More than go out at once.
    for n in 0..40 {
        let dead = leases.lease(format!("dead/{n}")).ttl(secs(300));
        dead.try_acquire().await.unwrap_err();
    }
    let healthy = leases.lease("k").ttl(secs(300));
    healthy.try_acquire().await.unwrap_err();
    tokio::time::sleep(secs(1)).await;
    assert!(world.is_free("k").await);
    assert!(!world.is_free("dead/0").await);
}

#[tokio::test(start_paused = true)]
async fn an_allowance_that_leaves_nothing_is_refused_before_anything_is_sent() {
    let world = World::new();
    let drift = DriftAllowance::new(10_000, secs(60)).unwrap();
    let leases = world.builder().drift_allowance(drift).build();
    let error = leases.lease("k").ttl(secs(30)).acquire().await.unwrap_err();
    assert!(
        matches!(error, Error::Invalid(InvalidInput::NothingLeft { .. })),
        "{error}"
    );
    assert_eq!(world.store.count(Op::Acquire), 0);
}

#[tokio::test(start_paused = true)]
async fn a_wide_allowance_brings_the_renewals_forward() {
    let world = World::new();
    let drift = DriftAllowance::new(0, ms(700)).unwrap();
    let leases = world.builder().drift_allowance(drift).build();
    let lease = leases.lease("k").ttl(secs(1)).acquire().await.unwrap();
    tokio::time::sleep(secs(5)).await;
    lease.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_detached_grant_says_that_a_request_is_unanswered() {
    let world = World::new();
    let leases = world.leases();
    let grant = leases.lease("a").acquire().await.unwrap().detach().unwrap();
    assert!(!grant.unanswered);
    world
        .store
        .next(Op::Acquire, [Step::Fail(StoreErrorKind::UnknownOutcome)]);
    let grant = leases.lease("b").acquire().await.unwrap().detach().unwrap();
    assert!(grant.unanswered);
}
