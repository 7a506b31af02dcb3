//! Faults of a store that is away, cut off, or not alone in its place.

use super::{Row, quarantined, row, survives_all};
use crate::fault::Fault;
use crate::fixture::Plan;

pub(super) fn rows() -> Vec<Row> {
    let remote = |fault| Plan {
        hooks: true,
        ..Plan::fault(fault)
    };
    vec![
        row(
            "overwrites foreign values",
            remote(Fault::OverwritesForeign),
            &[
                "foreign::a_foreign_value_is_refused_and_left_alone",
                "foreign::a_grant_that_was_overwritten_is_refused",
            ],
        ),
        row(
            "fails a list for one foreign value",
            remote(Fault::SpoilsBatches),
            &["foreign::a_foreign_value_spoils_its_own_key_only"],
        ),
        row(
            "ends listings at foreign values",
            remote(Fault::EndsListsAtForeign),
            &["foreign::a_listing_passes_foreign_values_over"],
        ),
        row(
            "takes silence for no effect",
            remote(Fault::TakesSilenceForNo),
            &[
                "network::a_lost_reply_of_acquire_is_an_unknown_outcome",
                "network::lost_replies_of_renew_and_release_are_unknown_outcomes",
            ],
        ),
        row(
            "grants a retry anew",
            Plan {
                hooks: true,
                ..Plan::without(|r| r.same_owner_same_grant = false)
            },
            &["network::a_lost_reply_of_acquire_is_an_unknown_outcome"],
        ),
        row(
            "does not abandon what it never answered",
            remote(Fault::DropsAbandon),
            &["network::an_acquire_that_is_given_up_frees_the_key_at_once"],
        ),
        row(
            "never connects again",
            remote(Fault::StaysCut),
            &["network::cut_connections_are_made_again_and_nothing_leaks"],
        ),
        row(
            "renews from memory",
            remote(Fault::AnswersInPause),
            &[
                "pause::a_holder_learns_of_a_long_pause_by_its_deadline",
                "pause::requests_in_a_pause_are_answered_after_it",
            ],
        ),
        row(
            "forgets in a pause",
            remote(Fault::ForgetsInPause),
            &["pause::a_lease_survives_a_pause_shorter_than_its_ttl"],
        ),
        row(
            "loses what was asked in a pause",
            remote(Fault::DropsRequestsInPause),
            &["pause::requests_in_a_pause_are_answered_after_it"],
        ),
        row(
            "grants at once after the loss of its data",
            Plan {
                claims: quarantined,
                ..remote(Fault::SkipsQuarantine)
            },
            &["claims::exclusion_survives_the_loss_of_data"],
        ),
        row(
            "begins its tokens anew without its data",
            Plan {
                claims: survives_all,
                ..remote(Fault::LosesDataOnRestart)
            },
            &["claims::tokens_survive_the_loss_of_data"],
        ),
    ]
}
