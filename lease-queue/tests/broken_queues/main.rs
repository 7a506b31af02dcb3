//! Broken stores of queues that the suite must catch, each at the case named for the
//! rule that it breaks.
#![allow(clippy::unwrap_used)]

mod naive;
mod remote;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use lease_conformance::CaseResult;
use lease_conformance::queue::{self, QueueFixture, Wrapped};
use lease_core::{Clock, Moment, SystemClock};
use lease_queue::{MemoryQueues, QueueRules, QueueStore};

use naive::NaiveGroups;
use remote::{Comes, Remotes};

/// The reference store without some rules, on the machine's clock.
fn without(rules: QueueRules) -> MemoryQueues {
    let clock = SystemClock::new();
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let epoch = since_epoch.saturating_sub(clock.now().since(Moment::START));
    MemoryQueues::broken(Arc::new(clock), epoch, rules)
}

fn fixture(rules: QueueRules) -> impl QueueFixture {
    queue::fixture_fn(move || async move {
        let store = without(rules);
        Ok(move || Arc::new(store.clone()) as Arc<dyn QueueStore>)
    })
}

type Row = (&'static str, fn(&mut QueueRules), &'static [&'static str]);

/// What is left out, and the cases that must go red.
const ROWS: &[Row] = &[
    (
        "check_owner",
        |r| r.check_owner = false,
        &["late::another_owner_is_refused"],
    ),
    (
        "check_token",
        |r| r.check_token = false,
        &[
            "late::another_token_is_refused",
            "late::an_owners_old_claim_does_not_settle_its_new_one",
        ],
    ),
    (
        // As most queues do it: by the item alone.
        "neither owner nor token",
        |r| (r.check_owner, r.check_token) = (false, false),
        &[
            "late::a_zombie_harms_nobody",
            "crashes::each_item_is_completed_once_and_in_order",
        ],
    ),
    (
        "check_expiry",
        |r| r.check_expiry = false,
        &["late::an_expired_claim_is_dead_before_anybody_takes_it"],
    ),
    (
        "never_shorten",
        |r| r.never_shorten = false,
        &["settle::an_extension_never_shortens"],
    ),
    (
        "tombstones",
        |r| r.tombstones = false,
        &["abandon::a_late_claim_is_refused"],
    ),
    (
        "abandon_uncounted",
        |r| r.abandon_uncounted = false,
        &["abandon::all_that_an_owner_has_is_freed_uncounted"],
    ),
    (
        "settled_known",
        |r| r.settled_known = false,
        &[
            "settle::a_repeated_settle_is_told_so",
            "unknown_outcome::a_dropped_settle_repeated_takes_effect_once",
        ],
    ),
    (
        "completed_known",
        |r| r.completed_known = false,
        &["put::a_repeated_put_adds_once"],
    ),
    (
        "keeps_its_place",
        |r| r.keeps_its_place = false,
        &["retry::an_item_keeps_its_place_in_its_group"],
    ),
    (
        "mark_stays",
        |r| r.mark_stays = false,
        &["tokens::tokens_of_a_group_rise_over_all_its_items"],
    ),
    (
        "fence_revokes",
        |r| r.fence_revokes = false,
        &["fence::a_fence_revokes_an_items_claim"],
    ),
    (
        "delays",
        |r| r.delays = false,
        &["retry::a_retrys_delay_is_waited_for"],
    ),
];

/// The cases among `due` that stay green. On a machine that stops for longer than a
/// case's TTL the case shows nothing, and passes: then once more.
fn green(due: &[&str], check: impl Fn(&[&str]) -> lease_conformance::Report) -> Vec<String> {
    let names = queue::case_names();
    assert!(due.iter().all(|case| names.contains(case)), "{due:?}");
    let mut pending = due.to_vec();
    for _ in 0..5 {
        let report = check(&pending);
        pending.retain(|case| !matches!(report.results.get(case), Some(CaseResult::Failed(_))));
        if pending.is_empty() {
            break;
        }
    }
    pending.into_iter().map(str::to_owned).collect()
}

#[test]
fn every_rule_that_is_left_out_is_missed() {
    let (todo, missed) = (Mutex::new(ROWS.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some((name, take_out, due)) = todo.lock().unwrap().next() else {
                        break;
                    };
                    let mut rules = QueueRules::ALL;
                    take_out(&mut rules);
                    let green = green(due, |wanted| {
                        queue::check_only(fixture(rules), |case| wanted.contains(&case))
                    });
                    if !green.is_empty() {
                        missed.lock().unwrap().push((name, green));
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "these should be red: {missed:?}");
}

#[test]
fn every_rule_of_the_reference_store_has_its_row() {
    let names: BTreeSet<&str> = ROWS.iter().map(|(name, ..)| *name).collect();
    let rules = format!("{:?}", QueueRules::ALL);
    let words = rules.split(['{', '}', ',', ' ']);
    let words = words.filter_map(|word| word.strip_suffix(':'));
    // From there on they are about leases, and missed by the suite of leases.
    let rules: Vec<&str> = words.take_while(|rule| *rule != "line_counts").collect();
    assert!(rules.len() >= 12, "{rules:?}");
    for rule in rules {
        assert!(names.contains(rule), "no broken store is without {rule}");
    }
}

#[test]
fn groups_by_not_exists_have_two_owners_in_a_race_alone() {
    let fixture = || {
        queue::fixture_fn(|| async {
            let store = Wrapped(NaiveGroups::default());
            Ok(move || Arc::new(store.clone()) as Arc<dyn QueueStore>)
        })
    };
    let race = ["groups::a_race_keeps_one_owner_and_the_order"];
    let green = green(&race, |wanted| {
        queue::check_only(fixture(), |case| wanted.contains(&case))
    });
    assert!(green.is_empty(), "{green:?}");
    // Without a race it looks right, which is why it is found in the wild.
    let quiet = [
        "groups::a_group_has_one_owner",
        "groups::a_groups_items_come_in_order",
        "groups::groups_do_not_wait_for_each_other",
    ];
    let report = queue::check_only(fixture(), |case| quiet.contains(&case));
    assert!(report.is_green() && report.results.len() == 3, "{report}");
}

#[test]
fn a_store_with_every_hook_runs_every_case_and_is_green() {
    let report = queue::check(Remotes(Comes::BackWhole));
    assert!(report.is_green(), "{report}");
    let left_out: Vec<_> = report.not_claimed().chain(report.not_shown()).collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}

#[test]
fn a_store_that_comes_back_empty_is_red() {
    let due = [
        "restart::items_survive_a_restart",
        "restart::tokens_rise_over_a_restart",
        "restart::a_live_claim_survives_a_restart",
    ];
    let report = queue::check_only(Remotes(Comes::BackEmpty), |case| due.contains(&case));
    assert_eq!(report.failed().count(), due.len(), "{report}");
}
