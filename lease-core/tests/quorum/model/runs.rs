//! What is explored, and what is found with a rule left out.

// How far it went is what a reader of a run wants to see.
#![allow(clippy::print_stdout)]

use std::thread::available_parallelism;

use stateright::{Checker, Model};

use super::{Bounds, Quorum, Rules, Step};

/// Small enough for every run of the tests; `LEASES_MODEL=full` goes further.
fn is_full() -> bool {
    std::env::var("LEASES_MODEL").is_ok_and(|size| size == "full")
}

const BASE: Bounds = Bounds {
    clients: 2,
    horizon: 3,
    renewals: false,
    fences: 0,
    restarts: 0,
    clocks: false,
    retries: 0,
    releases: false,
    late_replies: false,
    slack: 0,
    aside: false,
};

fn explore(name: &str, rules: Rules, bounds: Bounds) -> Option<(String, Vec<Step>)> {
    let threads = available_parallelism().map_or(2, usize::from);
    let started = std::time::Instant::now();
    let checker = Quorum { rules, bounds }
        .checker()
        .threads(threads)
        .spawn_bfs()
        .join();
    println!(
        "{name}: {} states in {:?}",
        checker.unique_state_count(),
        started.elapsed()
    );
    let found = checker.discovery("right").map(|path| {
        let what = path.last_state().broken.unwrap_or_default().to_owned();
        (what, path.into_actions())
    });
    if found.is_none() {
        assert!(
            checker
                .discovery("the last client gets its lease")
                .is_some(),
            "{name}: nothing ever happens"
        );
    }
    found
}

fn holds(name: &str, bounds: Bounds) {
    let found = explore(name, Rules::ALL, bounds);
    assert!(found.is_none(), "{name}: {found:#?}");
}

fn fails(name: &str, bounds: Bounds, leave_out: fn(&mut Rules), expected: &[&str]) {
    let mut rules = Rules::ALL;
    leave_out(&mut rules);
    let Some((what, steps)) = explore(name, rules, bounds) else {
        panic!("nothing misses {name}");
    };
    println!("without {name}: {what}: {steps:?}");
    assert!(expected.contains(&&*what), "{name}: {what}");
    // The same bounds are right with all rules: the rule makes the difference.
    holds(name, bounds);
}

/// Any token from the largest upwards, and a node that is asked for it only.
const UNEVEN: Bounds = Bounds {
    slack: 1,
    aside: true,
    ..BASE
};

const TWO: &str = "two holders";
const TOKENS: &str = "tokens do not rise";

#[test]
fn the_rounds_hold() {
    holds("two rounds", BASE);
    let (late_replies, releases, retries) = (true, true, 1);
    holds(
        "late replies",
        Bounds {
            late_replies,
            horizon: 2,
            ..BASE
        },
    );
    holds(
        "releases",
        Bounds {
            releases,
            horizon: 1,
            ..BASE
        },
    );
    holds(
        "retries",
        Bounds {
            retries,
            horizon: 1,
            ..BASE
        },
    );
}

#[test]
fn the_rounds_hold_ahead_of_the_largest_token_and_with_a_node_left_aside() {
    let (releases, retries, clocks, restarts, late_replies) = (true, 1, true, 1, true);
    let horizon = 2;
    holds("uneven", Bounds { horizon, ..UNEVEN });
    holds(
        "uneven, clocks",
        Bounds {
            clocks,
            horizon,
            ..UNEVEN
        },
    );
    let now = Bounds {
        horizon: 0,
        ..UNEVEN
    };
    holds("uneven, releases", Bounds { releases, ..now });
    holds("uneven, retries", Bounds { retries, ..now });
    let horizon = 1;
    holds(
        "uneven, restart",
        Bounds {
            restarts,
            clocks,
            horizon,
            ..UNEVEN
        },
    );
    holds(
        "uneven, late replies",
        Bounds {
            late_replies,
            horizon,
            ..UNEVEN
        },
    );
}

#[test]
fn without_the_second_round_two_get_one_token() {
    let (clients, releases, horizon) = (3, true, 0);
    let bounds = Bounds {
        clients,
        releases,
        horizon,
        ..BASE
    };
    fails(
        "second_round",
        bounds,
        |r| r.second_round = false,
        &[TOKENS],
    );
}

#[test]
fn a_deadline_from_the_second_round_makes_two_holders() {
    let bounds = Bounds {
        horizon: 2,
        ..UNEVEN
    };
    fails("deadline", bounds, |r| r.deadline = false, &[TWO]);
}

#[test]
fn half_of_the_nodes_are_no_majority() {
    let bounds = Bounds {
        horizon: 0,
        ..UNEVEN
    };
    fails("majority", bounds, |r| r.majority = false, &[TWO, TOKENS]);
}

#[test]
fn a_node_that_grants_at_once_after_an_empty_start_makes_two_holders() {
    let (restarts, clocks, horizon) = (1, true, 0);
    let bounds = Bounds {
        restarts,
        clocks,
        horizon,
        ..UNEVEN
    };
    fails(
        "quarantine",
        bounds,
        |r| r.quarantine = false,
        &[TWO, TOKENS],
    );
    let (renewals, horizon) = (true, 1);
    holds(
        "restart and heal",
        Bounds {
            renewals,
            horizon,
            ..bounds
        },
    );
}

#[test]
fn a_heal_with_any_token_undoes_a_fence() {
    let (renewals, fences, horizon) = (true, 1, 0);
    let bounds = Bounds {
        renewals,
        fences,
        horizon,
        ..UNEVEN
    };
    fails(
        "exact",
        bounds,
        |r| r.exact = false,
        &["a renewal counts after a fence"],
    );
}

#[test]
fn an_owner_that_asks_while_it_is_given_back_loses_its_majority() {
    let (retries, releases, horizon) = (1, true, 0);
    let bounds = Bounds {
        retries,
        releases,
        horizon,
        ..BASE
    };
    fails("settled", bounds, |r| r.settled = false, &[TWO, TOKENS]);
}

/// Millions of states each: minutes, and gigabytes.
#[test]
fn further() {
    if !is_full() {
        println!("LEASES_MODEL=full explores further");
        return;
    }
    let (renewals, releases, fences, restarts, clocks) = (true, true, 1, 1, true);
    let late_replies = true;
    uneven_further();
    holds("clocks", Bounds { clocks, ..BASE });
    holds(
        "restart",
        Bounds {
            restarts,
            clocks,
            ..BASE
        },
    );
    holds("renewals", Bounds { renewals, ..BASE });
    holds(
        "fence",
        Bounds {
            renewals,
            fences,
            horizon: 2,
            ..BASE
        },
    );
    holds(
        "heal",
        Bounds {
            renewals,
            restarts,
            clocks,
            horizon: 2,
            ..BASE
        },
    );
    holds(
        "late",
        Bounds {
            late_replies,
            releases,
            horizon: 2,
            ..BASE
        },
    );
    holds(
        "late retries",
        Bounds {
            late_replies,
            releases,
            retries: 1,
            horizon: 0,
            ..BASE
        },
    );
}

fn uneven_further() {
    let (releases, late_replies) = (true, true);
    holds("uneven", UNEVEN);
    let bounds = Bounds {
        releases,
        horizon: 1,
        ..UNEVEN
    };
    holds("uneven, releases", bounds);
    let bounds = Bounds {
        late_replies,
        horizon: 0,
        ..bounds
    };
    holds("uneven, late", bounds);
}
