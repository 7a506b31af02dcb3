//! A subscription that takes its time: it keeps nobody from looking, and no look cuts it
//! short.

use std::time::Duration;

use lease_core::{CancelReason, Error, Lease, Moment, StoreErrorKind};
use tokio_util::sync::CancellationToken;

use crate::support::{Op, Step, World, ms, secs};

async fn held_by_another(world: &World, ttl: Duration) -> Lease {
    let other = world.other();
    other.lease("k").ttl(ttl).acquire().await.unwrap()
}

/// When a waiter looks within a minute at a key that is free again and again for nobody
/// but its holder, who renews.
async fn looks(ttl: Duration, watch: Step) -> (Vec<Duration>, usize) {
    let world = World::new();
    world.store.always(Op::Watch, watch);
    let _holder = held_by_another(&world, ttl).await;
    let start = world.now();
    let waits = world.leases().lease("k").wait(secs(60)).acquire();
    assert!(matches!(waits.await, Err(Error::Contended { .. })));
    assert_eq!(world.now().since(start), secs(60));
    let looks = world.store.calls_of(Op::Acquire);
    let looks = looks.iter().skip(1).map(|call| call.sent.since(start));
    (looks.collect(), world.store.count(Op::Watch))
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_hangs_delays_no_look_and_is_asked_for_every_ten_seconds() {
    for ttl in [ms(50), secs(3), secs(600)] {
        // Nothing that could wake it: it looks by its timer alone.
        let (polls, _) = looks(ttl, Step::Fail(StoreErrorKind::Unavailable)).await;
        for hangs in [Step::LoseRequest, Step::LoseReply] {
            let (seen, asked) = looks(ttl, hangs).await;
            assert!(seen.len() >= polls.len() / 2, "{ttl:?}: {}", seen.len());
            let mut before = Duration::ZERO;
            let longest = (polls.windows(2).map(|two| two[1] - two[0])).max();
            for look in seen {
                assert!(
                    look - before <= longest.unwrap() + ms(2),
                    "{ttl:?}: {look:?}"
                );
                before = look;
            }
            assert!((6..=7).contains(&asked), "{ttl:?}: {asked} subscriptions");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_subscription_that_takes_longer_than_many_looks_stands_in_the_end() {
    // Looks every fifty milliseconds, every second, every five.
    for ttl in [ms(50), secs(1), secs(600)] {
        let world = World::new();
        world.store.always(Op::Watch, Step::Slow(ms(10), secs(9)));
        let holder = held_by_another(&world, ttl).await;
        let waiter = tokio::spawn(world.leases().lease("k").ttl(ms(50)).acquire());
        tokio::time::sleep(secs(12)).await;
        assert_eq!(world.store.count(Op::Watch), 1, "{ttl:?}");
        let start = world.now();
        holder.release().await.unwrap();
        let _lease = waiter.await.unwrap().unwrap();
        assert!(world.now().since(start) <= ms(2), "{ttl:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_requests_do_not_cut_a_subscription_short() {
    let world = World::new();
    world.store.always(Op::Watch, Step::Slow(ms(10), secs(9)));
    let holder = held_by_another(&world, secs(1)).await;
    let waiter = tokio::spawn(world.leases().lease("k").acquire());
    // All of them before it stands: one that stands is given up then.
    for _ in 0..4 {
        tokio::time::sleep(secs(2)).await;
        let fails = Step::Fail(StoreErrorKind::Unavailable);
        world.store.next(Op::Acquire, [fails.clone(), fails]);
    }
    tokio::time::sleep(secs(3)).await;
    assert_eq!(world.store.count(Op::Watch), 1);
    let start = world.now();
    holder.release().await.unwrap();
    let _lease = waiter.await.unwrap().unwrap();
    assert!(world.now().since(start) <= ms(2));
}

#[tokio::test(start_paused = true)]
async fn waiters_who_hand_the_key_on_share_a_subscription_that_hangs() {
    let world = World::new();
    world.store.always(Op::Watch, Step::LoseRequest);
    let leases = world.leases();
    let start = world.now();
    let waiters: Vec<_> = (0..100)
        .map(|_| {
            let leases = leases.clone();
            tokio::spawn(async move {
                let lease = leases.lease("k").acquire().await.unwrap();
                tokio::time::sleep(ms(90)).await;
                lease.release().await.unwrap();
            })
        })
        .collect();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    let took = world.now().since(start);
    assert!(took <= ms(9_200), "{took:?}");
    assert_eq!(world.store.count(Op::Watch), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_on_time_while_a_subscription_hangs() {
    for own in [false, true] {
        let world = World::new();
        world.store.always(Op::Watch, Step::LoseRequest);
        let leases = world.leases();
        // The holder is another client, or the waiter's own.
        let holds = if own { leases.clone() } else { world.other() };
        let holder = holds.lease("k").ttl(secs(600)).acquire().await.unwrap();
        let start = world.now();
        let cancel = CancellationToken::new();
        let later = cancel.clone();
        tokio::spawn(async move {
            tokio::time::sleep(ms(7_777)).await;
            later.cancel();
        });
        let waits = leases.lease("k").cancel_with(cancel).acquire();
        let error = waits.await.unwrap_err();
        let why = CancelReason::Token;
        assert!(matches!(error, Error::Cancelled { why: w, .. } if w == why));
        assert_eq!(world.now().since(start), ms(7_777), "{own}");

        let limit: Moment = world.now().after(ms(12_345));
        let waits = leases.lease("k").wait_until(limit).acquire();
        assert!(matches!(waits.await, Err(Error::Contended { .. })));
        assert_eq!(world.now(), limit, "{own}");

        // A release is the end of the wait all the same.
        let waiter = tokio::spawn(leases.lease("k").acquire());
        tokio::time::sleep(ms(100)).await;
        let start = world.now();
        holder.release().await.unwrap();
        let _lease = waiter.await.unwrap().unwrap();
        let most = if own { ms(2) } else { ms(5_002) };
        assert!(world.now().since(start) <= most, "{own}");
    }
}
