//! Renewals of many leases together.

use std::sync::Arc;

use lease_core::{LostCause, RenewOutcome, StoreErrorKind};

use crate::support::{Op, Step, World, ms, secs};

#[tokio::test(start_paused = true)]
async fn a_thousand_leases_share_batches_and_one_lost_harms_no_other() {
    let world = World::new();
    let leases = world.leases();
    let mut held = Vec::new();
    for n in 0..1_000 {
        held.push(
            leases
                .lease(format!("k{n}"))
                .ttl(secs(3))
                .acquire()
                .await
                .unwrap(),
        );
    }
    // Taken away behind its holder's back.
    let gone = &held[333];
    let key = gone.key().clone();
    leases
        .backend()
        .release(&key, gone.owner(), gone.token())
        .await
        .unwrap();
    tokio::time::sleep(secs(30)).await;
    for (n, lease) in held.iter().enumerate() {
        assert_eq!(lease.check().is_err(), n == 333, "{n}");
    }
    let batches = world.store.calls_of(Op::RenewMany);
    let renewed: usize = batches.iter().map(|call| call.many).sum();
    let calls = batches.len() + world.store.count(Op::Renew);
    assert!(renewed >= 30_000, "{renewed}");
    assert!(calls < renewed / 20, "{calls} calls for {renewed}");
    assert!(batches.iter().all(|call| call.many <= 500));
}

#[tokio::test(start_paused = true)]
async fn outcomes_too_few_or_too_many_are_survived() {
    for (keep, add) in [(0, 0), (1, 0), (2, 0), (3, 4)] {
        let world = World::new();
        let leases = world.leases();
        let mut held = Vec::new();
        for n in 0..3 {
            held.push(
                leases
                    .lease(format!("k{n}"))
                    .ttl(ms(90))
                    .acquire()
                    .await
                    .unwrap(),
            );
        }
        let tamper = Step::Tamper(Arc::new(move |outcomes| {
            outcomes.truncate(keep);
            for _ in 0..add {
                outcomes.push(Ok(RenewOutcome::Lost(LostCause::Unknown)));
            }
        }));
        world.store.next(Op::RenewMany, [tamper]);
        tokio::time::sleep(secs(2)).await;
        for lease in &held {
            lease.check().unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_or_panics_or_hangs_is_tried_again() {
    for step in [
        Step::Fail(StoreErrorKind::Unavailable),
        Step::Panic,
        Step::PanicAtOnce,
        Step::LoseReply,
    ] {
        let world = World::new();
        let leases = world.leases();
        let mut held = Vec::new();
        for n in 0..50 {
            held.push(
                leases
                    .lease(format!("k{n}"))
                    .ttl(secs(3))
                    .acquire()
                    .await
                    .unwrap(),
            );
        }
        world
            .store
            .next(Op::RenewMany, [step.clone(), step.clone(), step]);
        tokio::time::sleep(secs(30)).await;
        for lease in &held {
            lease.check().unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn short_and_long_leases_of_one_client_keep_their_own_pace() {
    let world = World::new();
    let leases = world.leases();
    let long = leases
        .lease("long")
        .ttl(secs(3_600))
        .acquire()
        .await
        .unwrap();
    let short = leases.lease("short").ttl(ms(50)).acquire().await.unwrap();
    tokio::time::sleep(secs(60)).await;
    short.check().unwrap();
    let mine = |key: &str| {
        let calls = world.store.calls_of(Op::Renew);
        calls.iter().filter(|call| call.key == key).count()
    };
    assert_eq!(mine("long"), 0);
    assert!(
        (3_600..=6_000).contains(&mine("short")),
        "{}",
        mine("short")
    );
    short.release().await.unwrap();
    tokio::time::sleep(secs(3_600)).await;
    assert!((2..=4).contains(&mine("long")));
    assert_eq!(world.store.count(Op::RenewMany), 0);
    long.check().unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_lease_that_makes_its_batch_panic_loses_no_other() {
    let world = World::new();
    let leases = world.leases();
    let mut held = Vec::new();
    for n in 0..100 {
        held.push(
            leases
                .lease(format!("k{n}"))
                .ttl(secs(3))
                .acquire()
                .await
                .unwrap(),
        );
    }
    world.store.poison("k7");
    tokio::time::sleep(secs(30)).await;
    for (n, lease) in held.iter().enumerate() {
        assert_eq!(lease.check().is_err(), n == 7, "{n}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_not_answered_with_a_storm_of_single_renewals() {
    let world = World::new();
    let leases = world.leases();
    let mut held = Vec::new();
    for n in 0..1_000 {
        held.push(
            leases
                .lease(format!("k{n}"))
                .ttl(secs(30))
                .acquire()
                .await
                .unwrap(),
        );
    }
    world
        .store
        .always(Op::Renew, Step::Fail(StoreErrorKind::Unavailable));
    world
        .store
        .always(Op::RenewMany, Step::Fail(StoreErrorKind::Unavailable));
    tokio::time::sleep(secs(25)).await;
    let many: usize = world
        .store
        .calls_of(Op::RenewMany)
        .iter()
        .map(|c| c.many)
        .sum();
    let (batches, single) = (
        world.store.count(Op::RenewMany),
        world.store.count(Op::Renew),
    );
    let renewals = many + single;
    assert!(
        batches + single < renewals / 2,
        "{renewals} in {batches} + {single}"
    );
    world.store.always(Op::Renew, Step::Pass);
    world.store.always(Op::RenewMany, Step::Pass);
    tokio::time::sleep(secs(60)).await;
    for lease in &held {
        lease.check().unwrap();
    }
}
