//! Broken stores that the suite must catch, each at the case named for the
//! rule that it breaks; and faultless ones that it must not.

mod distort;
mod fault;
mod faulty;
mod fixture;
mod remote;
mod table;

use std::collections::BTreeSet;
use std::sync::Mutex;

use lease_conformance::{CaseResult, Report, case_names, check, check_only};

use table::{Row, faultless, rows};

/// Checks that all the named cases go red.
fn caught(row: &Row) -> Result<(), String> {
    let names = case_names();
    for case in row.red {
        if !names.contains(case) {
            return Err(format!("{}: there is no case {case}", row.name));
        }
    }
    let mut pending: Vec<&str> = row.red.to_vec();
    // On a machine that stops for longer than a case's TTL the case shows
    // nothing, and passes: once more.
    for _ in 0..5 {
        let report = check_only(row.plan.clone(), |name| pending.contains(&name));
        pending.retain(|case| !matches!(report.results.get(case), Some(CaseResult::Failed(_))));
        if pending.is_empty() {
            return Ok(());
        }
    }
    Err(format!("{}: {pending:?} should be red", row.name))
}

#[test]
fn every_broken_store_is_red_where_it_should_be() {
    // Most of them wait for what never comes.
    let (todo, missed) = (Mutex::new(rows().into_iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                loop {
                    let Some(row) = todo.lock().unwrap().next() else {
                        break;
                    };
                    // Before the lock, or the rows would run one by one.
                    let found = caught(&row).err();
                    missed.lock().unwrap().extend(found);
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn every_rule_of_the_reference_store_has_its_row() {
    let names: BTreeSet<&str> = rows().iter().map(|row| row.name).collect();
    let rules = format!("{:?}", lease_core::StoreRules::ALL);
    let rules: Vec<&str> = rules
        .split(['{', '}', ',', ' '])
        .filter_map(|word| word.strip_suffix(':'))
        .collect();
    assert!(rules.len() >= 12, "{rules:?}");
    for rule in rules {
        assert!(names.contains(rule), "no broken store is without {rule}");
    }
}

#[test]
fn every_rule_of_a_line_has_its_row() {
    let names: BTreeSet<&str> = rows().iter().map(|row| row.name).collect();
    let rules = format!("{:?}", lease_queue::QueueRules::ALL);
    let words = rules.split(['{', '}', ',', ' ']);
    let words = words.filter_map(|word| word.strip_suffix(':'));
    // Those before it are about items, and have their rows where items are.
    let rules: Vec<&str> = words.skip_while(|rule| *rule != "line_counts").collect();
    assert!(rules.len() >= 6, "{rules:?}");
    for rule in rules {
        assert!(names.contains(rule), "no broken store is without {rule}");
    }
}

#[test]
fn faultless_stores_are_green() {
    for (name, plan) in faultless() {
        let report = check(plan);
        assert!(report.is_green(), "{name}:\n{report}");
    }
}

#[test]
fn hooks_and_claims_leave_no_case_out() {
    // Together, the faultless stores run every case.
    let mut left_out: BTreeSet<&str> = case_names().into_iter().collect();
    for (_, plan) in faultless() {
        // One cheap case: what is left out does not depend on running it.
        let report = check_only(plan, |name| {
            [
                "restart::",
                "claims::exclusion_survives_the_loss",
                "claims::tokens_survive_the_loss",
                "foreign::",
                "network::",
                "pause::",
                "ttl::",
                "keys::keys_",
                "token::",
                "abandon::a_tombstone_",
                "line::a_retry_",
            ]
            .iter()
            .any(|group| name.starts_with(group))
        });
        let ignored: BTreeSet<&str> = report.not_claimed().map(|(name, _)| name).collect();
        left_out.retain(|name| ignored.contains(name));
    }
    assert!(left_out.is_empty(), "{left_out:?}");
}

#[test]
fn a_failure_says_which_rule_was_broken() {
    let row = &rows()[0];
    let report: Report = check_only(row.plan.clone(), |name| row.red.contains(&name));
    let (name, message) = report.failed().next().unwrap();
    for part in [name, "rule: ", "expected: ", "seen: "] {
        assert!(message.contains(part), "{message}");
    }
}

/// Every case is turned red by some broken store: `cargo xtask test --full`.
#[test]
#[ignore = "takes minutes: run by `cargo xtask test --full`"]
fn the_whole_table() {
    let mut never_red: BTreeSet<&str> = case_names().into_iter().collect();
    // What nothing can show is never run.
    let boasts = check_only(table::boasting(), |name| name.starts_with("claims::"));
    for (name, _) in boasts.not_shown() {
        never_red.remove(name);
    }
    for row in rows() {
        let report = check(row.plan);
        let red: Vec<&str> = report.failed().map(|(name, _)| name).collect();
        println!("{}: {}", row.name, red.join(", "));
        never_red.retain(|name| !red.contains(name));
    }
    assert!(
        never_red.is_empty(),
        "no fault turns these red: {never_red:?}"
    );
}
