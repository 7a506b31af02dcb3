//! What is explored, and what is found with a rule left out.

// How far it went is what a reader of a run wants to see.
#![allow(clippy::print_stdout)]

use std::thread::available_parallelism;

use stateright::{Checker, Model};

use super::{Bounds, Rules, Step, Witness};

/// Small enough for every run of the tests; `LEASES_MODEL=full` goes further.
fn is_full() -> bool {
    std::env::var("LEASES_MODEL").is_ok_and(|size| size == "full")
}

const BASE: Bounds = Bounds {
    horizon: 6,
    contenders: 1,
    losses: 1,
    renewals: 2,
};

fn explore(rules: Rules, bounds: Bounds) -> Option<(&'static str, Vec<Step>)> {
    let threads = available_parallelism().map_or(2, usize::from);
    let started = std::time::Instant::now();
    let checker = Witness { rules, bounds }
        .checker()
        .threads(threads)
        .spawn_bfs()
        .join();
    let states = checker.unique_state_count();
    println!("{states} states in {:?}", started.elapsed());
    let found = checker.discovery("right").map(|path| {
        let what = path.last_state().broken.unwrap_or_default();
        (what, path.into_actions())
    });
    if found.is_none() {
        for event in ["the key is taken over", "a lease lasts"] {
            assert!(checker.discovery(event).is_some(), "never: {event}");
        }
    }
    found
}

fn holds(bounds: Bounds) {
    let found = explore(Rules::ALL, bounds);
    assert!(found.is_none(), "{bounds:?}: {found:#?}");
}

/// What goes wrong without the rule, in bounds in which nothing does with it.
fn fails(leave_out: fn(&mut Rules), expected: &str) {
    let mut rules = Rules::ALL;
    leave_out(&mut rules);
    let Some((what, steps)) = explore(rules, BASE) else {
        panic!("nothing misses it: {rules:?}");
    };
    println!("{what}: {steps:?}");
    assert_eq!(what, expected, "{rules:?}");
}

const TWO: &str = "two holders";

#[test]
fn with_all_rules_there_is_one_holder() {
    holds(BASE);
}

#[test]
fn each_rule_is_needed() {
    fails(|r| r.look = false, TWO);
    fails(|r| r.grace = false, TWO);
    fails(|r| r.least = false, "a look made the grant longer");
    fails(|r| r.same_session = false, TWO);
    fails(|r| r.new_number = false, TWO);
    fails(|r| r.bound = false, TWO);
    fails(|r| r.drift = false, TWO);
    fails(|r| r.from_send = false, TWO);
    fails(|r| r.carried = false, TWO);
    fails(|r| r.order = false, TWO);
}

/// Millions of states each: minutes, and gigabytes.
#[test]
fn further() {
    if !is_full() {
        println!("LEASES_MODEL=full explores further");
        return;
    }
    let (horizon, contenders, losses, renewals) = (8, 2, 2, 3);
    holds(Bounds { horizon, ..BASE });
    holds(Bounds { contenders, ..BASE });
    holds(Bounds {
        losses,
        renewals,
        ..BASE
    });
}
