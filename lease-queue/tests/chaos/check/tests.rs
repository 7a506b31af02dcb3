//! Histories made up, each with one rule broken.

use super::*;

const GROUPS: usize = 2;
const EACH: u32 = 3;

fn work(group: usize, number: u32) -> Work {
    Work { group, number }
}

/// A claim of one's own: asked, there a moment later, and completed.
fn held(group: usize, number: u32, token: u64, from: u64, until: u64) -> Held {
    Held {
        of: Of {
            group,
            owner: u128::from(token) << 32 | u128::from(from),
            token,
        },
        work: work(group, number),
        asked: from - 1,
        from,
        until,
        given_up: true,
        completed: Some(Answered::Done),
    }
}

fn write(group: usize, number: u32, token: u64) -> Write {
    Write {
        work: work(group, number),
        token,
        attempt: 1,
        worker: 1,
    }
}

/// All went well, and the first item's first worker died before its completion.
fn well() -> History {
    let mut history = History {
        groups: GROUPS,
        each: EACH,
        ..History::default()
    };
    for group in 0..GROUPS {
        let mut died = held(group, 0, 10, 100, 200);
        (died.given_up, died.completed) = (false, None);
        history.claims.push(died);
        history.journal.push(write(group, 0, 10));
        for number in 0..EACH {
            let (token, from) = (11 + u64::from(number), 200 + 100 * u64::from(number));
            let claim = held(group, number, token, from, from + 100);
            history.claims.push(claim);
            history.journal.push(write(group, number, token));
            history.effects.push(work(group, number));
        }
    }
    history
}

#[track_caller]
fn breaks(rule: Rule, spoil: impl FnOnce(&mut History)) {
    let mut history = well();
    spoil(&mut history);
    let found: Vec<_> = history
        .broken()
        .into_iter()
        .map(|broken| broken.0)
        .collect();
    assert_eq!(found, [rule]);
}

#[test]
fn a_run_that_went_well_breaks_no_rule() {
    assert_eq!(well().broken(), []);
}

#[test]
fn an_item_that_is_left_was_not_completed() {
    breaks(Rule::Completed, |h| h.left.push("an item".to_owned()));
}

#[test]
fn an_item_is_completed_by_one_claim() {
    // The first worker's completion was accepted, too.
    breaks(Rule::Completed, |h| {
        h.claims[0].completed = Some(Answered::Done);
    });
    breaks(Rule::Completed, |h| {
        h.claims[0].completed = Some(Answered::Before);
    });
    let mut refused = well();
    refused.claims[0].completed = Some(Answered::Lost);
    assert_eq!(refused.broken(), []);
}

#[test]
fn an_effect_that_is_missing_or_there_twice_is_found() {
    breaks(Rule::AppliedOnce, |h| h.effects.truncate(5));
    breaks(Rule::AppliedOnce, |h| h.effects.push(work(1, 1)));
    breaks(Rule::AppliedOnce, |h| h.effects.push(work(GROUPS, 0)));
}

#[test]
fn writes_out_of_order_are_found() {
    // The tokens still rise.
    breaks(Rule::InOrder, |h| {
        (h.journal[2].work, h.journal[3].work) = (h.journal[3].work, h.journal[2].work);
    });
    // The first one of a group.
    breaks(Rule::InOrder, |h| drop(h.journal.drain(0..2)));
    // An item again after the one behind it.
    breaks(Rule::InOrder, |h| h.journal.insert(3, write(0, 0, 12)));
}

#[test]
fn claims_out_of_order_are_found() {
    breaks(Rule::InOrder, |h| {
        (h.claims[2].work, h.claims[3].work) = (h.claims[3].work, h.claims[2].work);
    });
}

#[test]
fn a_late_write_that_was_admitted_is_found() {
    // Of the item that its new owner has written already.
    breaks(Rule::TokensRise, |h| h.journal.insert(2, write(0, 0, 10)));
}

#[test]
fn a_claim_whose_token_does_not_rise_is_found() {
    // The same one as of the worker that died; the order of items tells nothing of it.
    breaks(Rule::TokensRise, |h| h.claims[1].of.token = 10);
}

#[test]
fn two_owners_at_once_are_found() {
    breaks(Rule::OneOwner, |h| h.claims[1].from = 199);
    // Hidden behind a short one.
    breaks(Rule::OneOwner, |h| h.claims[1].until = 301);
    // Another group's owners do not matter.
    let mut apart = well();
    apart.claims[0].from = 150;
    assert_eq!(apart.broken(), []);
}

#[test]
fn a_claim_that_came_after_its_deadline_is_nobodys() {
    let mut late = well();
    let mut claim = held(0, 0, 10, 250, 240);
    (claim.of.owner, claim.asked) = (77, 50);
    (claim.given_up, claim.completed) = (false, None);
    claim.of.token = 9;
    late.claims.push(claim);
    assert_eq!(late.broken(), []);
}
