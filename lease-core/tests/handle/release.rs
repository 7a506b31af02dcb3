//! The end of a lease: released, dropped or detached.

use std::sync::Arc;

use lease_core::{
    Attempt, Error, LeaseBackend, ReleaseOutcome, Released, RenewOutcome, RenewRequest,
    StoreErrorKind,
};

use crate::support::{Op, Step, World, is_unconfirmed, kinds, lost_of, ms, secs};

#[tokio::test(start_paused = true)]
async fn nothing_is_renewed_after_a_release() {
    let world = World::new();
    let leases = world.leases();
    for _ in 0..10_000 {
        let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
        assert_eq!(lease.release().await.unwrap(), Released::Freed);
    }
    tokio::time::sleep(secs(9)).await;
    assert_eq!(world.store.count(Op::Renew), 0);
    assert_eq!(world.store.count(Op::Release), 10_000);
    assert_eq!(world.store.count(Op::Abandon), 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_lands_after_the_release_neither_revives_nor_alarms() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let signal = lease.cancellation_token();
    world.store.next(Op::Renew, [Step::Slow(ms(500), ms(500))]);
    tokio::time::sleep(ms(1_200)).await;
    assert_eq!(lease.release().await.unwrap(), Released::Freed);
    assert!(world.is_free("k").await);
    tokio::time::sleep(secs(9)).await;
    let renewals = world.store.calls_of(Op::Renew);
    assert_eq!(renewals.len(), 1);
    assert_eq!(renewals[0].answer, "Ok(Lost(Released))");
    assert!(world.is_free("k").await && !signal.is_cancelled());
    assert!(!world.words().contains(&"lost"));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_lands_before_a_renewal_in_flight_is_no_loss() {
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    let signal = lease.cancellation_token();
    world.store.next(Op::Renew, [Step::Slow(ms(20), ms(0))]);
    // Slow to answer: the renewal's "lost" comes first.
    world.store.next(Op::Release, [Step::Slow(ms(0), ms(300))]);
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(world.store.count(Op::Renew), 1);
    assert_eq!(lease.release().await.unwrap(), Released::Freed);
    assert!(!signal.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_sent_again_until_it_is_answered() {
    for kind in [StoreErrorKind::Unavailable, StoreErrorKind::UnknownOutcome] {
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
            .next(Op::Release, [Step::Fail(kind), Step::Fail(kind)]);
        assert_eq!(lease.release().await.unwrap(), Released::Freed, "{kind}");
        assert_eq!(world.store.count(Op::Release), 3);
        let words = world.words();
        let retried = words.iter().filter(|word| **word == "release_retried");
        assert_eq!(retried.count(), 2, "{words:?}");
        let calls = world.store.calls_of(Op::Release);
        assert!(calls.iter().all(|call| call.token == calls[0].token));
        assert!(world.is_free("k").await);
        // The same client is not confused by it.
        let _lease = world
            .leases()
            .lease("k")
            .try_acquire()
            .await
            .unwrap()
            .lease()
            .unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_refused_for_good_is_told_of_at_once() {
    for kind in [StoreErrorKind::Refusing, StoreErrorKind::InvalidInput] {
        let world = World::new();
        let leases = world.leases();
        let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
        let start = world.now();
        world.store.always(Op::Release, Step::Fail(kind));
        let error = lease.release().await.unwrap_err();
        assert!(matches!(error, Error::Store(e) if e.kind() == kind));
        assert_eq!((world.now(), world.store.count(Op::Release)), (start, 1));
        assert_eq!(world.words().last(), Some(&"release_failed"));
        // After a transient failure, too.
        let lease = leases.lease("k2").ttl(secs(3)).acquire().await.unwrap();
        let transient = Step::Fail(StoreErrorKind::UnknownOutcome);
        world.store.next(Op::Release, [transient]);
        let error = lease.release().await.unwrap_err();
        assert!(matches!(error, Error::Store(e) if e.kind() == kind));
        assert_eq!(world.store.count(Op::Release), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_reply_was_lost_is_gone_and_not_an_error() {
    for step in [
        Step::LoseReply,
        Step::ApplyThenFail(StoreErrorKind::UnknownOutcome),
        Step::Slow(ms(0), secs(60)),
    ] {
        let world = World::new();
        let lease = world
            .leases()
            .lease("k")
            .ttl(secs(30))
            .acquire()
            .await
            .unwrap();
        world.store.next(Op::Release, [step]);
        assert_eq!(lease.release().await.unwrap(), Released::Gone);
        assert!(world.is_free("k").await);
    }
}

#[tokio::test(start_paused = true)]
async fn not_held_at_the_first_answer_says_that_it_was_lost() {
    let world = World::new();
    let leases = world.leases();
    let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    let signal = lease.cancellation_token();
    leases
        .backend()
        .release(lease.key(), lease.owner(), lease.token())
        .await
        .unwrap();
    // A failure without effect in between changes nothing.
    world
        .store
        .next(Op::Release, [Step::Fail(StoreErrorKind::Unavailable)]);
    let lost = lost_of(lease.release().await.unwrap_err());
    // The store knows why.
    assert_eq!(lost.reason.as_str(), "released");
    assert!(signal.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_lapsed_cannot_free_its_successors_key() {
    let world = World::new();
    let (leases, other) = (world.leases(), world.other());
    let old = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    world.store.always(Op::Renew, Step::LoseRequest);
    assert!(is_unconfirmed(&old.lost().await));
    let new = other.lease("k").ttl(secs(3)).acquire().await.unwrap();
    assert_ne!(old.owner(), new.owner());
    // It was lost at its deadline, and that stays the reason.
    assert!(is_unconfirmed(&lost_of(old.release().await.unwrap_err())));
    new.check().unwrap();
    assert_eq!(world.look("k").await.holder.unwrap().token, new.token());
}

#[tokio::test(start_paused = true)]
async fn two_leases_of_one_client_have_owners_of_their_own() {
    let world = World::new();
    let leases = world.leases();
    let a = leases.lease("a").label("same").acquire().await.unwrap();
    let b = leases.lease("b").label("same").acquire().await.unwrap();
    assert_ne!(a.owner(), b.owner());
    let again = leases.lease("a").label("same").try_acquire().await.unwrap();
    assert!(matches!(again, Attempt::Held(_)));
    // One's words do not release or renew the other.
    let (key, owner, token) = (b.key(), a.owner(), b.token());
    let outcome = world.store.release(key, owner, token).await.unwrap();
    assert_eq!(outcome, ReleaseOutcome::NotHeld);
    let (key, ttl) = (key.clone(), b.ttl());
    let renewal = RenewRequest {
        key,
        owner,
        token,
        ttl,
    };
    let outcome = world.store.renew(&renewal).await.unwrap();
    assert!(matches!(outcome, RenewOutcome::Lost(_)));
    b.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_a_release_is_given_up_after_a_ttl() {
    for kind in kinds() {
        let world = World::new();
        let lease = world
            .leases()
            .lease("k")
            .ttl(secs(3))
            .acquire()
            .await
            .unwrap();
        // A renewal whose reply was lost may make it last longer than its own
        // deadline, but not longer than this.
        let over = world.now().after(secs(3));
        world.store.always(Op::Release, Step::Fail(kind));
        let error = lease.release().await.unwrap_err();
        assert!(matches!(error, Error::Store(e) if e.kind() == kind));
        let transient = [StoreErrorKind::Unavailable, StoreErrorKind::UnknownOutcome];
        let at_once = !transient.contains(&kind);
        assert!(at_once || world.now() >= over);
        assert!(world.now().since(over) <= ms(2));
        let calls = world.store.count(Op::Release);
        assert!(calls < 60, "{calls}");
        assert!(world.words().contains(&"release_failed"));
    }
    let world = World::new();
    let lease = world
        .leases()
        .lease("k")
        .ttl(secs(3))
        .acquire()
        .await
        .unwrap();
    world.store.always(Op::Release, Step::LoseRequest);
    lease.release().await.unwrap_err();
    tokio::time::sleep(ms(50)).await;
    assert!(world.is_free("k").await, "free by its expiry");
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panics_in_a_release_is_asked_again() {
    for step in [Step::Panic, Step::PanicAtOnce] {
        let world = World::new();
        let leases = world.leases();
        let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
        world.store.next(Op::Release, [step]);
        assert_eq!(lease.release().await.unwrap(), Released::Freed);
        assert!(leases.shutdown(secs(1)).await.settled);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_future_is_dropped_goes_on() {
    // Dropped after this many polls; before the first it is a drop of the
    // handle.
    for polls in 0..3 {
        let world = World::new();
        let lease = world
            .leases()
            .lease("k")
            .ttl(secs(30))
            .acquire()
            .await
            .unwrap();
        world.store.next(
            Op::Release,
            [
                Step::Slow(ms(100), ms(0)),
                Step::Fail(StoreErrorKind::Unavailable),
            ],
        );
        let mut release = Box::pin(lease.release());
        for _ in 0..polls {
            assert!(
                futures_util::future::poll_immediate(release.as_mut())
                    .await
                    .is_none()
            );
            tokio::task::yield_now().await;
        }
        drop(release);
        tokio::time::sleep(ms(101)).await;
        assert!(world.is_free("k").await, "after {polls} polls");
    }
}

#[tokio::test(start_paused = true)]
async fn the_scope_of_the_caller_may_be_cancelled_without_harm() {
    let world = World::new();
    let leases = world.leases();
    let request = tokio::spawn(async move {
        let lease = leases.lease("k").ttl(secs(30)).acquire().await.unwrap();
        lease.run(std::future::pending::<()>()).await
    });
    tokio::time::sleep(ms(10)).await;
    assert!(!world.is_free("k").await);
    request.abort();
    tokio::time::sleep(ms(10)).await;
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_frees_its_key_at_once() {
    let world = World::new();
    let leases = world.leases();
    let worker = tokio::spawn(async move {
        let _lease = leases.lease("k").ttl(secs(30)).acquire().await.unwrap();
        panic!("scripted: the work");
    });
    worker.await.unwrap_err();
    tokio::time::sleep(ms(1)).await;
    assert!(world.is_free("k").await);
    tokio::time::sleep(secs(60)).await;
    assert_eq!(world.store.count(Op::Renew), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_releases_in_the_background_and_outlives_the_client() {
    let world = World::new();
    let leases = world.leases();
    let lease = leases.lease("k").ttl(secs(30)).acquire().await.unwrap();
    drop(leases);
    tokio::time::sleep(secs(60)).await;
    lease.check().unwrap();
    world
        .store
        .next(Op::Release, [Step::Fail(StoreErrorKind::Unavailable)]);
    drop(lease);
    tokio::time::sleep(secs(1)).await;
    assert!(world.is_free("k").await);
    assert_eq!(world.store.count(Op::Release), 2);
}

#[tokio::test(start_paused = true)]
async fn a_detached_grant_is_neither_renewed_nor_released() {
    let world = World::new();
    let leases = world.leases();
    let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    let signal = lease.cancellation_token();
    tokio::time::sleep(ms(500)).await;
    let grant = lease.detach().unwrap();
    assert_eq!(grant.remaining, ms(2_468));
    tokio::time::sleep(ms(2_400)).await;
    assert!(!world.is_free("k").await);
    assert_eq!(
        world.store.count(Op::Renew) + world.store.count(Op::Release),
        0
    );
    let freed = world
        .store
        .release(&grant.key, grant.owner, grant.token)
        .await;
    assert_eq!(freed.unwrap(), ReleaseOutcome::Released);
    assert!(!signal.is_cancelled());
    assert_eq!(world.words().last(), Some(&"detached"));
    // A lost one cannot be detached.
    let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    world.clock.jump(secs(3));
    assert!(is_unconfirmed(&lease.detach().unwrap_err()));
}

#[tokio::test(start_paused = true)]
async fn run_of_an_acquisition_releases_however_the_work_ends() {
    let world = World::new();
    let leases = world.leases();
    let run = leases
        .lease("k")
        .ttl(secs(3))
        .run(|lease| async move { lease.token() });
    let token = run.await.unwrap();
    assert!(world.is_free("k").await);
    // The work's own failure is its output.
    let run = leases
        .lease("k")
        .run(|_| async { Err::<(), _>("start-up failed") });
    assert_eq!(run.await.unwrap(), Err("start-up failed"));
    assert!(world.is_free("k").await);
    // Dropped at loss.
    world.store.always(Op::Renew, Step::LoseRequest);
    let run = leases
        .lease("k")
        .ttl(secs(3))
        .run(|_| std::future::pending::<()>());
    assert!(is_unconfirmed(&lost_of(run.await.unwrap_err())));
    // Panics.
    let work = leases.lease("k").ttl(secs(30));
    let work = tokio::spawn(work.run(|_| async { panic!("scripted: the work") }));
    work.await.unwrap_err();
    tokio::time::sleep(ms(1)).await;
    assert!(world.is_free("k").await);
    let clock = Arc::clone(&world.clock);
    // Too late by the clock alone.
    let run = leases
        .lease("k")
        .ttl(secs(3))
        .run(|_| async move { clock.jump(secs(3)) });
    assert!(is_unconfirmed(&lost_of(run.await.unwrap_err())));
    assert!(world.look("k").await.high_water.unwrap() > token);
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_outlives_the_work_of_run_keeps_the_lease_until_it_goes() {
    let world = World::new();
    let leases = world.leases();
    let run = leases
        .lease("k")
        .ttl(secs(3))
        .run(|lease| async move { lease });
    let kept = run.await.unwrap();
    tokio::time::sleep(secs(9)).await;
    kept.check().unwrap();
    assert!(!world.is_free("k").await);
    drop(kept);
    tokio::time::sleep(ms(1)).await;
    assert!(world.is_free("k").await);
}
