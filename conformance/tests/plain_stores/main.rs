//! Stores that keep the contract in other ways than the reference store does:
//! the suite must leave each of them green.

mod store;

use lease_conformance::{Arguments, CaseResult, Report, check, check_only, run};

use store::{Kind, Plain};

#[track_caller]
fn green(kind: Kind) -> Report {
    let report = check(Plain(kind));
    assert!(report.is_green(), "{kind:?}:\n{report}");
    report
}

#[test]
fn a_store_without_a_clock_in_its_tokens_is_green() {
    let report = green(Kind::default());
    let listing = report
        .not_claimed()
        .filter(|(_, why)| *why == "not claimed: listing");
    assert!(listing.count() >= 6, "{report}");
}

#[test]
fn a_store_that_keeps_whole_seconds_is_green() {
    green(Kind {
        coarse: true,
        ..Kind::default()
    });
}

#[test]
fn a_store_whose_streams_end_after_a_hint_is_green() {
    green(Kind {
        one_hint: true,
        ..Kind::default()
    });
}

#[test]
fn a_store_that_remembers_ended_owners_is_green() {
    green(Kind {
        strict: true,
        ..Kind::default()
    });
}

#[test]
fn a_store_of_short_keys_is_green() {
    let report = green(Kind {
        narrow: true,
        ..Kind::default()
    });
    let limit = "keys::keys_above_a_narrower_limit_are_invalid";
    assert_eq!(report.results[limit], CaseResult::Passed);
}

#[test]
fn a_store_that_is_all_of_these_is_green() {
    green(Kind {
        coarse: true,
        one_hint: true,
        narrow: true,
        strict: true,
        boasts: false,
    });
}

#[test]
fn a_claim_that_is_not_shown_is_never_passed_over_in_silence() {
    let kind = Kind {
        boasts: true,
        ..Kind::default()
    };
    let groups = |name: &str| name.starts_with("claims::") || name.starts_with("restart::");
    let report = check_only(Plain(kind), groups);
    let shown: Vec<&str> = report.not_shown().map(|(name, _)| name).collect();
    assert_eq!(
        shown,
        [
            "claims::a_lost_session_frees_the_key",
            "claims::exclusion_reaches_beyond_one_process",
            "claims::exclusion_survives_a_failover",
            "claims::exclusion_survives_a_step_of_the_clock",
            "claims::exclusion_survives_the_loss_of_data",
            "claims::tokens_survive_a_failover",
            "claims::tokens_survive_a_step_of_the_clock",
            "restart::a_block_survives_a_restart",
            "restart::a_live_grant_survives_a_restart",
            "restart::tokens_rise_over_a_restart",
        ]
    );
    let words = "ignored, claimed, and not shown by this suite (the fixture has no hook for it)";
    assert_eq!(report.to_string().matches(words).count(), shown.len());
    // Asked for by name they are no more passed than before.
    let mut arguments = Arguments::from_iter([
        "conformance",
        "--logfile",
        "/dev/null",
        "claims::a_lost_session",
    ]);
    arguments.include_ignored = true;
    let conclusion = run("boaster", Plain(kind), &arguments);
    assert_eq!((conclusion.num_passed, conclusion.num_ignored), (0, 1));
}

#[test]
fn who_claims_nothing_has_nothing_left_to_show() {
    let report = check_only(Plain(Kind::default()), |name| name.starts_with("claims::"));
    assert_eq!(report.not_shown().count(), 0, "{report}");
    assert_eq!(report.not_claimed().count(), 9, "{report}");
}
