//! That a run catches what it is there for: a store whose groups have two owners, and a
//! resource without a fence.

#[path = "../broken_queues/naive.rs"]
mod naive;

use std::sync::Arc;
use std::time::Duration;

use lease_queue::MemoryQueues;

use crate::TURN;
use crate::check::Rule;
use crate::conduct::{Plan, lines, run, seed};
use crate::thread::Threads;
use crate::worker::Effect;
use lease_conformance::queue::Wrapped;
use naive::NaiveGroups;

#[tokio::test]
async fn groups_by_not_exists_are_caught_with_two_owners() {
    let _turn = TURN.lock().await;
    let plan = Plan {
        // Fewer than the workers have hands, so that these meet in them.
        groups: 10,
        // It looks at every item that it ever had, for each claim.
        each: 15,
        kills: 0,
        stops: 0,
        patience: Duration::from_secs(10),
        ..Plan::new(Effect::Ledger)
    };
    let mut due = vec![Rule::OneOwner, Rule::InOrder];
    let mut seed = seed();
    // It takes two that work at the same time, which a busy machine may keep apart.
    for _ in 0..20 {
        let crew = Threads::new(Arc::new(Wrapped(NaiveGroups::default())));
        let (broken, _) = run(&plan, seed, &crew, None).await;
        due.retain(|rule| broken.iter().all(|broken| broken.0 != *rule));
        if due.is_empty() {
            return;
        }
        seed = seed.wrapping_add(1);
    }
    panic!("not caught: {due:?}");
}

#[tokio::test]
async fn a_resource_without_a_fence_is_caught_with_late_writes() {
    let _turn = TURN.lock().await;
    let crew = Threads::new(Arc::new(MemoryQueues::new()));
    let plan = Plan {
        each: 50,
        kills: 0,
        ..Plan::new(Effect::OpenLedger)
    };
    let (broken, _) = run(&plan, seed(), &crew, None).await;
    let rules: Vec<_> = broken.iter().map(|broken| broken.0).collect();
    // The store did well.
    let of_writes = |rule: &Rule| matches!(rule, Rule::TokensRise | Rule::InOrder);
    assert!(rules.contains(&Rule::TokensRise), "{}", lines(&broken));
    assert!(rules.iter().all(of_writes), "{}", lines(&broken));
}
