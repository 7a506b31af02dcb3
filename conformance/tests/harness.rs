//! How the suite tells what it found.

use std::sync::Arc;

use lease_conformance::{
    Arguments, CaseResult, Fixture, Suites, case_names, check, fixture_fn, run,
};
use lease_core::{LeaseBackend, MemoryStore};

fn memory() -> impl Fixture {
    fixture_fn(|| async {
        let store = MemoryStore::new();
        Ok(move || Arc::new(store.clone()) as Arc<dyn LeaseBackend>)
    })
}

fn closed() -> impl Fixture {
    fixture_fn(|| async {
        let refused: Result<fn() -> Arc<dyn LeaseBackend>, _> = Err("connection refused".into());
        refused
    })
}

fn arguments(filter: &str) -> Arguments {
    // What these runs say is not what this one says.
    Arguments::from_iter(["conformance", "--logfile", "/dev/null", filter])
}

#[test]
fn names_are_unique_and_grouped() {
    let mut names = case_names();
    let all = names.len();
    assert!(names.iter().all(|name| name.split("::").count() == 2));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn a_filter_runs_its_cases_only() {
    let conclusion = run("memory", memory(), &arguments("acquire::"));
    assert!(!conclusion.has_failed());
    assert!(conclusion.num_passed >= 8);
    assert!(conclusion.num_filtered_out > 100);
}

#[test]
fn suites_are_told_apart_by_their_stores_names() {
    let both = || Suites::new().with("one", memory()).with("two", closed());
    let conclusion = both().run(&arguments("one::acquire::"));
    assert!(!conclusion.has_failed());
    assert!(conclusion.num_passed >= 8);
    let conclusion = both().run(&arguments("two::restart::"));
    assert_eq!((conclusion.num_passed, conclusion.num_failed), (0, 3));
}

#[test]
fn what_is_not_claimed_is_ignored_and_never_passed() {
    let conclusion = run("memory", memory(), &arguments("restart::"));
    assert_eq!((conclusion.num_passed, conclusion.num_ignored), (0, 3));
    let mut asked_for = arguments("restart::");
    asked_for.include_ignored = true;
    let conclusion = run("memory", memory(), &asked_for);
    assert_eq!((conclusion.num_passed, conclusion.num_ignored), (0, 3));
}

#[test]
fn a_store_that_does_not_open_fails_every_case() {
    let conclusion = run("closed", closed(), &arguments("restart::"));
    assert_eq!((conclusion.num_failed, conclusion.num_ignored), (3, 0));
    let report = check(closed());
    assert_eq!(report.results.len(), case_names().len());
    assert!(!report.is_green());
    for result in report.results.values() {
        assert!(
            matches!(result, CaseResult::Failed(why) if why.contains("connection refused")),
            "{result:?}"
        );
    }
}
