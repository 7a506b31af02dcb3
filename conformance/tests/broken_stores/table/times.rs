//! Faults of TTLs, tokens and fences.

use super::{Row, row, seconds};
use crate::fault::Fault;
use crate::fixture::Plan;

pub(super) fn rows() -> Vec<Row> {
    vec![
        row(
            "cuts long TTLs",
            Plan::fault(Fault::CutsLongTtls),
            &[
                "ttl::the_longest_ttl_does_not_wrap",
                "ttl::long_ttls_are_kept_exactly",
            ],
        ),
        row(
            "takes fewer TTLs than claimed",
            Plan::fault(Fault::RefusesLongTtls),
            &["ttl::the_longest_ttl_does_not_wrap"],
        ),
        row(
            "wraps TTLs",
            Plan::fault(Fault::WrapsTtls),
            &["ttl::long_ttls_are_kept_exactly"],
        ),
        row(
            "keeps whole seconds",
            Plan::fault(Fault::KeepsWholeSeconds),
            &["ttl::odd_ttls_are_not_cut"],
        ),
        row(
            "cuts TTLs to the seconds that it claims to keep",
            Plan {
                claims: seconds,
                ..Plan::fault(Fault::KeepsWholeSeconds)
            },
            &["expiry::a_grant_lasts_at_least_its_ttl"],
        ),
        row(
            "halves TTLs",
            Plan::fault(Fault::HalvesTtls),
            &[
                "expiry::a_grant_lasts_at_least_its_ttl",
                "exclusion::histories_are_exclusive",
            ],
        ),
        row(
            "doubles TTLs",
            Plan::fault(Fault::DoublesTtls),
            &["expiry::a_grant_ends_with_its_ttl"],
        ),
        row(
            "draws tokens by lot",
            {
                let mut plan = Plan::without(|r| r.exactly_above_mark = false);
                plan.fault = Fault::RandomTokens;
                plan
            },
            &[
                "token::tokens_rise_over_releases",
                "exclusion::histories_are_exclusive",
            ],
        ),
        row(
            "rounds tokens",
            Plan::fault(Fault::RoundsTokens),
            &["token::tokens_are_exact_up_to_the_highest"],
        ),
        row(
            "ignores the floor",
            Plan::fault(Fault::IgnoresFloor),
            &[
                "token::a_token_is_above_the_callers_floor",
                "token::a_floor_at_the_highest_is_refused",
            ],
        ),
        row(
            "clamps fences",
            Plan::fault(Fault::ClampsFences),
            &[
                "fence::a_fence_is_bounded",
                "errors::invalid_input_is_typed_and_harmless",
            ],
        ),
        row(
            "fences one above",
            Plan::fault(Fault::FencesOneAbove),
            &[
                "fence::a_fence_at_the_holders_token_leaves_it_alone",
                "fence::a_repeated_fence_changes_nothing",
            ],
        ),
        row(
            "never frees at once",
            Plan::fault(Fault::NeverImmediate),
            &[
                "fence_blocking::an_immediate_fence_frees_at_once",
                "fence_blocking::an_immediate_fence_frees_what_an_earlier_one_blocked",
            ],
        ),
        row(
            "hides blocks",
            Plan::fault(Fault::HidesBlocks),
            &["fence_blocking::a_blocked_key_is_told_apart"],
        ),
        row(
            "forgets the marks of free keys",
            Plan::fault(Fault::ForgetsFreeMarks),
            &["expiry::an_expired_key_is_free", "release::the_mark_stays"],
        ),
        row(
            "counts one above",
            Plan::fault(Fault::CountsOneAbove),
            &[
                "token_exactly::a_free_key_is_granted_above_the_mark",
                "token_exactly::the_owner_may_ask_for_its_token_again",
            ],
        ),
        row(
            "never ends the shortest TTL",
            Plan::fault(Fault::NeverEndsShortTtls),
            &["ttl::the_shortest_ttl_works"],
        ),
    ]
}
