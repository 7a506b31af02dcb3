//! Claims that are not true.

use super::{Row, narrow, row, survives_all};
use crate::fault::Fault;
use crate::fixture::Plan;
use lease_core::{Exclusion, Survives, WakeUps};
use std::time::Duration;

pub(super) fn rows() -> Vec<Row> {
    let claiming = |claims| Plan {
        claims,
        ..Plan::faultless()
    };
    vec![
        row(
            "claims to list",
            Plan::fault(Fault::CannotList),
            &["claims::listing_is_claimed_or_refused"],
        ),
        row(
            "panics",
            Plan::fault(Fault::Panics),
            &["claims::a_diagnosis_is_given"],
        ),
        row(
            "has no name",
            claiming(|mut claims| {
                claims.store = " ".into();
                claims
            }),
            &["claims::the_store_has_a_name"],
        ),
        row(
            "polls without a pause",
            claiming(|c| {
                c.wake_ups(WakeUps::Poll {
                    every: Duration::ZERO,
                })
            }),
            &["claims::polling_has_a_pace"],
        ),
        row(
            "fails over a single primary",
            claiming(|c| c.exclusion(Exclusion::SinglePrimary, Survives::NOTHING.failover())),
            &["claims::exclusion_and_what_it_survives_agree"],
        ),
        row(
            "survives only loss",
            claiming(|c| c.tokens_survive(Survives::NOTHING.data_loss())),
            &["claims::what_survives_loss_survives_a_restart"],
        ),
        row(
            "takes TTLs that nobody may ask for",
            claiming(|mut claims| {
                claims.ttl.min = Duration::ZERO;
                claims
            }),
            &["claims::the_limits_are_the_contracts_or_narrower"],
        ),
        row(
            "takes any TTL",
            Plan {
                claims: narrow,
                ..Plan::fault(Fault::TakesAnyTtl)
            },
            &["ttl::a_ttl_outside_the_range_is_invalid"],
        ),
        row(
            "takes any key",
            Plan {
                claims: narrow,
                ..Plan::fault(Fault::TakesAnyKey)
            },
            &["keys::keys_above_a_narrower_limit_are_invalid"],
        ),
        row(
            "loses its data in a restart",
            Plan {
                claims: survives_all,
                hooks: true,
                ..Plan::fault(Fault::LosesDataOnRestart)
            },
            &[
                "restart::a_live_grant_survives_a_restart",
                "restart::a_block_survives_a_restart",
                "restart::tokens_rise_over_a_restart",
            ],
        ),
        row(
            "counts tokens but claims that they survive loss",
            Plan {
                claims: survives_all,
                clock_tokens: false,
                ..Plan::faultless()
            },
            &["token::tokens_are_not_below_the_stores_clock"],
        ),
        row(
            "forgets tombstones before the retention is over",
            Plan {
                retention: Duration::from_millis(10),
                hooks: true,
                ..Plan::faultless()
            },
            &["abandon::a_tombstone_lasts_its_retention"],
        ),
        row(
            "claims by client",
            Plan::fault(Fault::ClaimsByClient),
            &["claims::every_client_claims_the_same"],
        ),
    ]
}
