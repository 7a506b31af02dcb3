//! The reference store of queues, whose waiters stand in line, each time without one
//! rule of that.

use super::{Row, row};
use crate::fixture::Plan;

pub(super) fn rows() -> Vec<Row> {
    vec![
        row(
            "line_counts",
            Plan::in_line_without(|r| r.line_counts = false),
            &[
                "claims::waiters_are_served_in_order",
                "line::order_holds_over_an_expiry",
                "line::order_holds_over_a_fence",
                "line::a_grant_ends_its_place",
            ],
        ),
        row(
            "turns_pass",
            Plan::in_line_without(|r| r.turns_pass = false),
            &["line::a_dead_head_costs_one_turn"],
        ),
        row(
            "missed_not_awaited",
            Plan::in_line_without(|r| r.missed_not_awaited = false),
            &["line::a_dead_head_costs_one_turn"],
        ),
        row(
            "places_fade",
            Plan::in_line_without(|r| r.places_fade = false),
            &["line::a_place_fades"],
        ),
        row(
            "place_kept",
            Plan::in_line_without(|r| r.place_kept = false),
            &["line::a_retry_keeps_its_place"],
        ),
        row(
            "abandon_leaves_line",
            Plan::in_line_without(|r| r.abandon_leaves_line = false),
            &["line::who_gives_up_leaves_the_line"],
        ),
        row(
            "tries_come_last",
            Plan::in_line_without(|r| r.tries_come_last = false),
            &["line::a_try_does_not_pass_the_line"],
        ),
    ]
}
