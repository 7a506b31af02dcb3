//! The reference store, each time without one rule.

use super::{Row, row};
use crate::fixture::Plan;
use std::time::Duration;

pub(super) fn rows() -> Vec<Row> {
    vec![
        row(
            "never_shorten",
            Plan::without(|r| r.never_shorten = false),
            &[
                "renew::a_late_acquire_never_shortens",
                "renew::a_renewal_never_shortens",
                "late::every_order_of_late_requests",
            ],
        ),
        row(
            "tombstones",
            Plan::without(|r| r.tombstones = false),
            &[
                "abandon::an_owner_never_seen_is_refused_later",
                "abandon::a_late_acquire_after_release_and_abandon_is_refused",
                "unknown_outcome::a_dropped_acquire_is_cleaned_up_by_abandon",
                "late::every_order_of_late_requests_after_release_and_abandon",
            ],
        ),
        row(
            "tombstone_per_owner",
            Plan::without(|r| r.tombstone_per_owner = false),
            &[
                "abandon::each_owner_has_its_own_tombstone",
                "abandon::a_tombstone_outlives_other_grants",
            ],
        ),
        row(
            "abandon_any_token",
            Plan::without(|r| r.abandon_any_token = false),
            &[
                "abandon::a_grant_is_freed_without_its_token",
                "abandon::a_grant_is_freed_whatever_its_token",
                "abandon::a_late_grant_after_expiry_is_freed",
            ],
        ),
        row(
            "same_owner_same_grant",
            Plan::without(|r| r.same_owner_same_grant = false),
            &[
                "acquire::same_owner_gets_the_same_grant",
                "retry::a_retry_from_another_client_is_the_same_grant",
                "retry::copies_at_the_same_time_are_one_grant",
            ],
        ),
        row(
            "check_owner",
            Plan::without(|r| r.check_owner = false),
            &[
                "renew::a_wrong_owner_is_lost",
                "renew::a_wrong_token_is_lost",
                "release::a_wrong_owner_frees_nothing",
                "release::a_wrong_token_frees_nothing",
                "expiry::a_taken_over_grant_is_not_released",
                "expiry::a_taken_over_grant_is_not_renewed",
            ],
        ),
        row(
            "dead_stays_dead",
            Plan::without(|r| r.dead_stays_dead = false),
            &["expiry::an_expired_grant_is_not_renewed"],
        ),
        row(
            "revoked_blocks",
            Plan::without(|r| r.revoked_blocks = false),
            &["fence_blocking::a_revoked_grant_blocks_until_its_expiry"],
        ),
        row(
            "mark_stays",
            Plan::without(|r| r.mark_stays = false),
            &[
                "release::the_mark_stays",
                "token::tokens_rise_over_releases",
                "token::tokens_rise_over_every_end",
            ],
        ),
        row(
            "fence_raises",
            Plan::without(|r| r.fence_raises = false),
            &[
                "fence::a_fence_raises_the_mark",
                "fence::a_revoked_grant_is_lost",
            ],
        ),
        row(
            "exactly_above_mark",
            Plan::without(|r| r.exactly_above_mark = false),
            &[
                "token_exactly::a_free_key_is_refused_at_or_below_the_mark",
                "token_exactly::a_fence_is_a_mark_too",
            ],
        ),
        row(
            "exclusive",
            Plan::without(|r| r.exclusive = false),
            &[
                "acquire::another_owner_is_held",
                "exclusion::one_of_many_is_granted",
                "exclusion::histories_are_exclusive",
                "exclusion::histories_with_dropped_calls_are_exclusive",
            ],
        ),
        row(
            "a tombstone retention of 1 ms",
            Plan {
                retention: Duration::from_millis(1),
                ..Plan::faultless()
            },
            &["abandon::a_tombstone_outlives_requests_under_way"],
        ),
    ]
}
