//! Faults of the key space and of listing.

use super::{Row, row};
use crate::fault::Fault;
use crate::fixture::Plan;

pub(super) fn rows() -> Vec<Row> {
    vec![
        row(
            "folds case",
            Plan::fault(Fault::FoldsCase),
            &["keys::odd_keys_are_different_keys"],
        ),
        row(
            "trims keys",
            Plan::fault(Fault::TrimsKeys),
            &["keys::odd_keys_are_different_keys"],
        ),
        row(
            "cuts keys",
            Plan::fault(Fault::CutsKeys),
            &["keys::the_longest_keys_are_taken"],
        ),
        row(
            "splits keys at slashes",
            Plan::fault(Fault::SplitsKeysAtSlashes),
            &["keys::odd_keys_are_different_keys"],
        ),
        row(
            "hashes the braced part",
            Plan::fault(Fault::HashesBracedPart),
            &["keys::odd_keys_are_different_keys"],
        ),
        row(
            "lists held keys only",
            Plan::fault(Fault::ListsHeldOnly),
            &["listing::held_and_free_keys_are_listed"],
        ),
        row(
            "lists in any case",
            Plan::fault(Fault::ListsAnyCase),
            &[
                "listing::a_prefix_is_exact_bytes",
                "keys::odd_keys_are_listed_as_they_are",
            ],
        ),
        row(
            "lists one page",
            Plan::fault(Fault::ListsOnePage),
            &["listing::many_pages_are_listed"],
        ),
        row(
            "lists twice at pages",
            Plan::fault(Fault::ListsTwiceAtPages),
            &[
                "listing::many_pages_are_listed",
                "listing::listing_ends_while_keys_are_added",
            ],
        ),
    ]
}
