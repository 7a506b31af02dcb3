//! Stores that keep the contract in other ways than the reference store does:
//! the suite must leave each of them green.

mod store;

use lease_conformance::{Report, check};

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
fn a_store_that_remembers_released_owners_is_green() {
    green(Kind {
        strict: true,
        ..Kind::default()
    });
}
