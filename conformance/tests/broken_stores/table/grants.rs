//! Faults of acquire, abandon, renew, release and watch.

use super::{Row, row};
use crate::fault::Fault;
use crate::fixture::Plan;

pub(super) fn rows() -> Vec<Row> {
    vec![
        row(
            "drops abandon",
            Plan::fault(Fault::DropsAbandon),
            &[
                "abandon::a_grant_is_freed_without_its_token",
                "abandon::an_owner_never_seen_is_refused_later",
                "unknown_outcome::a_dropped_abandon_may_be_repeated",
            ],
        ),
        row(
            "abandons anybody",
            Plan::fault(Fault::AbandonsAnybody),
            &["abandon::other_owners_are_left_alone"],
        ),
        row(
            "renews by key only",
            Plan::fault(Fault::RenewsByKey),
            &[
                "renew::a_wrong_owner_is_lost",
                "expiry::a_taken_over_grant_is_not_renewed",
                "renew_many::a_lost_grant_leaves_the_others_alone",
            ],
        ),
        row(
            "renews by owner only",
            Plan::fault(Fault::RenewsByOwner),
            &["renew::a_wrong_token_is_lost"],
        ),
        row(
            "adds renewals up",
            Plan::fault(Fault::AddsUpRenewals),
            &["renew::renewals_do_not_add_up"],
        ),
        row(
            "reverses renew_many",
            Plan::fault(Fault::ReversesRenewals),
            &["renew_many::outcomes_come_in_order_of_the_requests"],
        ),
        row(
            "merges renew_many",
            Plan::fault(Fault::MergesRenewals),
            &["renew_many::a_request_may_be_repeated_in_the_list"],
        ),
        row(
            "renews only a hundred",
            Plan::fault(Fault::RenewsHundredOnly),
            &["renew_many::a_thousand_grants_are_renewed"],
        ),
        row(
            "loses all with one",
            Plan::fault(Fault::AllOrNothingRenewals),
            &["renew_many::a_lost_grant_leaves_the_others_alone"],
        ),
        row(
            "releases by key only",
            Plan::fault(Fault::ReleasesByKey),
            &[
                "release::a_wrong_owner_frees_nothing",
                "release::a_late_release_leaves_the_next_holder_alone",
                "expiry::a_taken_over_grant_is_not_released",
            ],
        ),
        row(
            "releases by owner only",
            Plan::fault(Fault::ReleasesByOwner),
            &["release::a_wrong_token_frees_nothing"],
        ),
        row(
            "always answers Released",
            Plan::fault(Fault::AlwaysReleased),
            &[
                "release::a_release_is_idempotent",
                "release::an_unknown_key_is_not_held",
                "expiry::an_expired_grant_is_not_released",
            ],
        ),
        row(
            "reads, then writes",
            {
                let mut plan = Plan::without(|r| r.exclusive = false);
                plan.fault = Fault::ReadsThenWrites;
                plan
            },
            &["exclusion::one_of_many_is_granted"],
        ),
        row(
            "hides the holder",
            Plan::fault(Fault::HidesTheHolder),
            &[
                "contention::held_names_the_holder",
                "contention::labels_are_kept_as_they_are",
            ],
        ),
        row(
            "invents remaining time",
            Plan::fault(Fault::InventsRemainingTime),
            &["contention::held_and_inspect_tell_the_remaining_time"],
        ),
        row(
            "leaks connections",
            Plan::fault(Fault::LeaksConnections),
            &["unknown_outcome::many_dropped_calls_leave_the_client_usable"],
        ),
        row(
            "swallows hints",
            Plan::fault(Fault::SwallowsHints),
            &[
                "wake_up::a_release_is_hinted_at",
                "wake_up::an_abandon_is_hinted_at",
                "wake_up::an_immediate_fence_is_hinted_at",
                "wake_up::every_watcher_is_woken",
            ],
        ),
        row(
            "ends streams before their hint",
            Plan::fault(Fault::EndsHints),
            &[
                "wake_up::a_release_is_hinted_at",
                "wake_up::an_abandon_is_hinted_at",
                "wake_up::an_immediate_fence_is_hinted_at",
                "wake_up::a_key_never_seen_may_be_watched",
                "wake_up::every_watcher_is_woken",
                "wake_up::one_watcher_is_woken_again_and_again",
            ],
        ),
        row(
            "hints once",
            Plan::fault(Fault::HintsOnce),
            &["wake_up::one_watcher_is_woken_again_and_again"],
        ),
        row(
            "marks abandoned keys",
            Plan::fault(Fault::MarksAbandonedKeys),
            &[
                "abandon::an_abandoned_key_has_no_mark",
                "listing::a_key_without_a_mark_is_not_listed",
            ],
        ),
        row(
            "fails on unknown keys",
            Plan::fault(Fault::FailsOnUnknownKeys),
            &[
                "renew::an_unknown_key_is_lost",
                "errors::every_call_of_a_fresh_key_is_answered",
            ],
        ),
        row(
            "renews what was released",
            Plan::fault(Fault::RenewsReleased),
            &["renew::a_released_grant_is_lost"],
        ),
        row(
            "answers once more",
            Plan::fault(Fault::AnswersOnceMore),
            &["renew_many::an_empty_list_is_empty"],
        ),
    ]
}
