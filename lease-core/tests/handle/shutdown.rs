//! The end of a client.

use lease_core::{CancelReason, Error, LostReason, StoreErrorKind};

use crate::support::{Op, Step, World, lost_of, ms, secs};

fn is_shutdown(error: &Error) -> bool {
    let why = CancelReason::Shutdown;
    matches!(error, Error::Cancelled { why: w, .. } if *w == why)
}

#[tokio::test(start_paused = true)]
async fn work_stops_at_once_and_what_is_dropped_is_released() {
    let world = World::new();
    let leases = world.leases();
    let mut tasks = Vec::new();
    for n in 0..20 {
        let lease = leases
            .lease(format!("k{n}"))
            .ttl(secs(600))
            .acquire()
            .await
            .unwrap();
        tasks.push(tokio::spawn(async move {
            lease.run(std::future::pending::<()>()).await
        }));
    }
    let start = world.now();
    let report = leases.shutdown(secs(10)).await;
    assert!(report.settled);
    assert!(world.now().since(start) <= ms(2));
    for task in tasks {
        let lost = task.await.unwrap().unwrap_err();
        assert!(matches!(lost.reason, LostReason::Shutdown));
    }
    for n in 0..20 {
        assert!(world.is_free(&format!("k{n}")).await);
    }
    assert_eq!(world.store.count(Op::Release), 20);
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_stays_is_lost_at_once_and_released_after_half_the_limit() {
    let world = World::new();
    let leases = world.leases();
    let lease = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
    let start = world.now();
    let stopping = tokio::spawn({
        let leases = leases.clone();
        async move { leases.shutdown(secs(10)).await }
    });
    tokio::time::sleep(ms(1)).await;
    assert!(matches!(
        lease.check().unwrap_err().reason,
        LostReason::Shutdown
    ));
    assert!(!world.is_free("k").await, "its work may be stopping");
    assert!(stopping.await.unwrap().settled);
    let took = world.now().since(start);
    assert!(took >= secs(5) && took <= ms(5_003), "{took:?}");
    // The next owner need not wait for the TTL.
    let next = world
        .other()
        .lease("k")
        .try_acquire()
        .await
        .unwrap()
        .lease()
        .unwrap();
    // What the handle does now harms nobody.
    let lost = lost_of(lease.release().await.unwrap_err());
    assert!(matches!(lost.reason, LostReason::Shutdown));
    next.check().unwrap();
    assert_eq!(world.look("k").await.holder.unwrap().token, next.token());
}

#[tokio::test(start_paused = true)]
async fn waiters_are_cancelled_and_nothing_is_acquired_any_more() {
    let world = World::new();
    let leases = world.leases();
    let _other = world
        .other()
        .lease("k")
        .ttl(secs(600))
        .acquire()
        .await
        .unwrap();
    let waiters: Vec<_> = (0..10)
        .map(|_| tokio::spawn(leases.lease("k").acquire()))
        .collect();
    tokio::time::sleep(ms(10)).await;
    assert!(leases.clone().shutdown(secs(1)).await.settled);
    for waiter in waiters {
        assert!(is_shutdown(&waiter.await.unwrap().unwrap_err()));
    }
    let sent = world.store.calls().len();
    for leases in [leases.clone(), leases] {
        assert!(is_shutdown(
            &leases.lease("free").acquire().await.unwrap_err()
        ));
        assert!(is_shutdown(
            &leases.lease("free").try_acquire().await.unwrap_err()
        ));
        let error = leases
            .lease("free")
            .wait(ms(0))
            .acquire()
            .await
            .unwrap_err();
        assert!(is_shutdown(&error));
        assert!(leases.shutdown(secs(1)).await.settled);
    }
    tokio::time::sleep(ms(1)).await;
    assert_eq!(world.store.calls().len(), sent);
}

#[tokio::test(start_paused = true)]
async fn a_request_under_way_is_abandoned_before_the_shutdown_has_settled() {
    for step in [
        Step::Slow(ms(0), secs(5)),
        Step::Slow(secs(1), ms(0)),
        Step::LoseReply,
    ] {
        let world = World::new();
        world.store.next(Op::Acquire, [step]);
        world.store.always(Op::Abandon, Step::Slow(ms(20), ms(20)));
        let leases = world.leases();
        let waiter = tokio::spawn(leases.lease("k").ttl(secs(600)).acquire());
        tokio::time::sleep(ms(10)).await;
        assert!(leases.shutdown(secs(10)).await.settled);
        // The process could end here.
        let abandoned = world.store.calls_of(Op::Abandon);
        assert_eq!(abandoned.len(), 1);
        assert!(abandoned[0].applied.is_some());
        tokio::time::sleep(secs(2)).await;
        assert!(world.is_free("k").await);
        assert!(is_shutdown(&waiter.await.unwrap().unwrap_err()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_an_acquisition_that_is_polled_late() {
    let world = World::new();
    world.store.next(Op::Acquire, [Step::LoseReply]);
    let leases = world.leases();
    let mut acquire = Box::pin(leases.lease("k").ttl(secs(600)).acquire());
    let polled = futures_util::future::poll_immediate(acquire.as_mut()).await;
    assert!(polled.is_none());
    let start = world.now();
    let late = async {
        tokio::time::sleep(secs(1)).await;
        acquire.await
    };
    let settled = async {
        let report = leases.shutdown(secs(10)).await;
        // The process could end here.
        assert!(report.settled && world.is_free("k").await);
    };
    let (ended, ()) = tokio::join!(late, settled);
    assert!(is_shutdown(&ended.unwrap_err()));
    assert!(world.now().since(start) <= ms(1_002));
    // One that is not polled at all is not waited for longer than the limit.
    let leases = world.leases();
    world.store.next(Op::Acquire, [Step::LoseReply]);
    let mut acquire = Box::pin(leases.lease("k2").acquire());
    let polled = futures_util::future::poll_immediate(acquire.as_mut()).await;
    assert!(polled.is_none());
    assert!(!leases.shutdown(secs(10)).await.settled);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_costs_no_more_than_the_limit() {
    for step in [
        Step::LoseRequest,
        Step::Fail(StoreErrorKind::Unavailable),
        Step::Panic,
    ] {
        let world = World::new();
        let leases = world.leases();
        let lease = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
        let kept = leases.lease("kept").ttl(secs(600)).acquire().await.unwrap();
        world.store.always(Op::Release, step);
        drop(lease);
        let start = world.now();
        let report = leases.shutdown(secs(10)).await;
        assert!(!report.settled);
        let took = world.now().since(start);
        assert!(took >= secs(10) && took <= ms(10_002), "{took:?}");
        kept.check().unwrap_err();
    }
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_panicked_in_renewals_does_not_settle_a_shutdown_early() {
    let world = World::new();
    let leases = world.leases();
    let lease = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
    let other = leases.lease("other").ttl(ms(500)).acquire().await.unwrap();
    world.store.always(Op::Renew, Step::PanicAtOnce);
    world.store.always(Op::Release, Step::Slow(secs(3), ms(0)));
    drop(lease);
    other.lost().await;
    drop(other);
    assert!(leases.shutdown(secs(10)).await.settled);
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_held_nothing_settles_at_once_and_without_a_limit_too() {
    let world = World::new();
    let start = world.now();
    assert!(world.leases().shutdown(secs(10)).await.settled);
    assert_eq!(world.now(), start);
    // No time at all still stops the client.
    let leases = world.leases();
    let lease = leases.lease("k").ttl(secs(600)).acquire().await.unwrap();
    assert!(!leases.shutdown(ms(0)).await.settled);
    tokio::time::sleep(ms(1)).await;
    lease.check().unwrap_err();
    assert!(world.is_free("k").await);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_dropped_has_stopped_the_client_and_no_other() {
    let world = World::new();
    let (leases, other) = (world.leases(), world.other());
    let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
    let theirs = other.lease("k2").ttl(secs(3)).acquire().await.unwrap();
    let stopping = tokio::time::timeout(ms(1), leases.shutdown(secs(10)));
    assert!(stopping.await.is_err());
    lease.check().unwrap_err();
    assert!(is_shutdown(
        &leases.lease("x").try_acquire().await.unwrap_err()
    ));
    tokio::time::sleep(secs(30)).await;
    theirs.check().unwrap();
}
