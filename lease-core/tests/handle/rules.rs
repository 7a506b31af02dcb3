//! Each rule of the holder's side left out, and what happens then. The same
//! script runs with the rule and without it: a test that passes both ways
//! would show nothing.
//!
//! The labels in the names are those of the counterexamples that exhaustive
//! small models found.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use lease_core::{
    AcquireOutcome, AcquireRequest, HolderRules, Key, Label, LeaseBackend, Owner, StoreErrorKind,
    StoreRules, Token, TokenRule, Ttl,
};

use crate::support::{Op, Step, TestClock, World, ms, secs};

/// All rules, and all but one.
fn with_and_without(leave_out: fn(&mut HolderRules)) -> [HolderRules; 2] {
    let mut broken = HolderRules::ALL;
    leave_out(&mut broken);
    assert_ne!(broken, HolderRules::ALL);
    [HolderRules::ALL, broken]
}

fn store_with_and_without(leave_out: fn(&mut StoreRules)) -> [StoreRules; 2] {
    let mut broken = StoreRules::ALL;
    leave_out(&mut broken);
    assert_ne!(broken, StoreRules::ALL);
    [StoreRules::ALL, broken]
}

/// Whether the holder still believed when the store granted the key to
/// somebody else.
async fn two_at_once(world: &World, rules: HolderRules, ttl: u64) -> bool {
    let leases = world.builder().broken_rules(rules).build();
    let lease = leases.lease("k").ttl(secs(ttl)).acquire().await.unwrap();
    let next = world
        .other()
        .lease("k")
        .ttl(secs(60))
        .acquire()
        .await
        .unwrap();
    assert!(next.token() > lease.token());
    lease.check().is_ok()
}

#[tokio::test(start_paused = true)]
async fn m1k_a_reply_counted_from_the_latest_send_makes_two_holders() {
    for rules in with_and_without(|r| r.own_send = false) {
        let world = World::new();
        // The first renewal's reply comes after the second was sent, and no
        // other request gets through.
        world.store.next(Op::Renew, [Step::Slow(ms(0), ms(700))]);
        world.store.always(Op::Renew, Step::LoseRequest);
        let two = two_at_once(&world, rules, 3).await;
        assert_eq!(two, rules != HolderRules::ALL);
    }
}

#[tokio::test(start_paused = true)]
async fn b_a_reply_out_of_order_moves_the_deadline_back() {
    for rules in with_and_without(|r| r.deadline_never_moves_back = false) {
        let world = World::new();
        let leases = world.builder().broken_rules(rules).build();
        let lease = leases.lease("k").ttl(secs(3)).acquire().await.unwrap();
        world
            .store
            .next(Op::Renew, [Step::Slow(ms(0), ms(900)), Step::Pass]);
        tokio::time::sleep(ms(1_700)).await;
        let before = lease.deadline();
        tokio::time::sleep(ms(300)).await;
        assert_eq!(lease.deadline() < before, rules != HolderRules::ALL);
    }
}

#[tokio::test(start_paused = true)]
async fn m1l_a_late_grant_that_is_handed_out_makes_tokens_go_2_then_1() {
    for rules in with_and_without(|r| r.late_grant_dropped = false) {
        let world = World::new();
        let handed_out = Arc::new(Mutex::new(Vec::new()));
        let (clock, memory) = (Arc::clone(&world.clock), world.store.memory());
        let second = Arc::clone(&handed_out);
        // Granted; then the reply lies there until the grant has expired and
        // somebody else has the key.
        let late = Step::ApplyThen(Arc::new(move || {
            clock.jump(secs(4));
            let request = AcquireRequest {
                key: Key::new("k").unwrap(),
                owner: Owner::from_bytes([9; 16]),
                ttl: Ttl::new(secs(3)).unwrap(),
                label: Label::new("").unwrap(),
                rule: TokenRule::NEXT,
                waits: None,
            };
            let outcome = memory.acquire(&request).now_or_never().unwrap();
            let Ok(AcquireOutcome::Granted(granted)) = outcome else {
                panic!("{outcome:?}");
            };
            second.lock().unwrap().push(granted.token);
        }));
        world.store.next(Op::Acquire, [late]);
        let leases = world.builder().broken_rules(rules).build();
        if let Ok(attempt) = leases.lease("k").ttl(secs(3)).try_acquire().await {
            let lease = attempt.lease().unwrap();
            handed_out.lock().unwrap().push(lease.token());
        }
        let handed_out: Vec<Token> = handed_out.lock().unwrap().clone();
        assert_eq!(handed_out.is_sorted(), rules == HolderRules::ALL);
    }
}

#[tokio::test(start_paused = true)]
async fn m1m_a_slow_clock_without_an_allowance_makes_two_holders() {
    for rules in with_and_without(|r| r.drift_allowance = false) {
        let world = World::new();
        world.store.always(Op::Renew, Step::LoseRequest);
        // Half a percent slow.
        let slow = TestClock::at_rate(-5_000);
        let leases = world.builder().clock(slow).broken_rules(rules).build();
        let lease = leases.lease("k").ttl(secs(10)).acquire().await.unwrap();
        let _next = world.other().lease("k").acquire().await.unwrap();
        assert_eq!(lease.check().is_ok(), rules != HolderRules::ALL);
    }
}

#[tokio::test(start_paused = true)]
async fn m1n_a_clock_within_the_allowance_is_never_one_of_two() {
    for ppm in [-9_900, -5_000, -100, 0, 100, 5_000, 9_900] {
        for ttl in [50, 1_000, 60_000] {
            let world = World::new();
            world.store.always(Op::Renew, Step::LoseRequest);
            let leases = world.builder().clock(TestClock::at_rate(ppm)).build();
            let lease = leases.lease("k").ttl(ms(ttl)).acquire().await.unwrap();
            let _next = world.other().lease("k").acquire().await.unwrap();
            assert!(lease.check().is_err(), "{ppm} ppm, {ttl} ms");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_counted_from_its_reply_makes_two_holders() {
    for rules in with_and_without(|r| r.count_from_send = false) {
        let world = World::new();
        world.store.next(Op::Acquire, [Step::Slow(ms(0), ms(900))]);
        world.store.always(Op::Renew, Step::LoseRequest);
        let two = two_at_once(&world, rules, 3).await;
        assert_eq!(two, rules != HolderRules::ALL);
        // A renewal likewise.
        let world = World::new();
        world.store.next(Op::Renew, [Step::Slow(ms(0), ms(400))]);
        world.store.always(Op::Renew, Step::LoseRequest);
        let two = two_at_once(&world, rules, 3).await;
        assert_eq!(two, rules != HolderRules::ALL);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_only_the_stores_word_ends_makes_two_holders() {
    for rules in with_and_without(|r| r.lost_at_deadline = false) {
        for step in [Step::LoseRequest, Step::Fail(StoreErrorKind::Unavailable)] {
            let world = World::new();
            world.store.always(Op::Renew, step);
            let two = two_at_once(&world, rules, 3).await;
            assert_eq!(two, rules != HolderRules::ALL);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m1b_an_acquisition_that_is_only_forgotten_leaves_an_orphan() {
    for rules in with_and_without(|r| r.abandon_on_give_up = false) {
        for step in [
            Step::LoseReply,
            Step::FailThenApply(StoreErrorKind::UnknownOutcome, ms(500)),
        ] {
            let world = World::new();
            world.store.next(Op::Acquire, [step]);
            let leases = world.builder().broken_rules(rules).build();
            leases
                .lease("k")
                .ttl(secs(600))
                .try_acquire()
                .await
                .unwrap_err();
            tokio::time::sleep(secs(1)).await;
            assert_eq!(world.is_free("k").await, rules == HolderRules::ALL);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn m1c_an_abandonment_without_a_tombstone_is_overtaken_by_the_acquire() {
    for rules in store_with_and_without(|r| r.tombstones = false) {
        let world = World::with_rules(rules);
        let late = Step::FailThenApply(StoreErrorKind::UnknownOutcome, ms(500));
        world.store.next(Op::Acquire, [late]);
        let leases = world.leases();
        leases
            .lease("k")
            .ttl(secs(600))
            .try_acquire()
            .await
            .unwrap_err();
        tokio::time::sleep(secs(1)).await;
        assert_eq!(world.is_free("k").await, rules == StoreRules::ALL);
    }
}

#[tokio::test(start_paused = true)]
async fn m1d_one_tombstone_for_two_that_gave_up_is_one_too_few() {
    for rules in store_with_and_without(|r| r.tombstone_per_owner = false) {
        let world = World::with_rules(rules);
        let late = Step::FailThenApply(StoreErrorKind::UnknownOutcome, ms(500));
        world.store.next(Op::Acquire, [late.clone(), late]);
        for leases in [world.leases(), world.other()] {
            leases
                .lease("k")
                .ttl(secs(600))
                .try_acquire()
                .await
                .unwrap_err();
            tokio::time::sleep(ms(1)).await;
        }
        tokio::time::sleep(secs(1)).await;
        assert_eq!(world.is_free("k").await, rules == StoreRules::ALL);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_know_its_own_owner_makes_a_retry_block_itself() {
    for rules in store_with_and_without(|r| r.same_owner_same_grant = false) {
        let world = World::with_rules(rules);
        world.store.next(Op::Acquire, [Step::LoseReply]);
        let acquire = world.leases().lease("k").ttl(secs(3)).wait(ms(3_500));
        let start = world.now();
        let lease = acquire.acquire().await.unwrap();
        // With the rule the second attempt has the first one's grant.
        let calls = world.store.count(Op::Acquire);
        assert_eq!(calls == 2, rules == StoreRules::ALL);
        assert!(lease.deadline() > start.after(secs(3)));
    }
}
