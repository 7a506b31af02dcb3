//! The rules of the contract of queues, one file per group.

mod abandon;
mod claim;
mod crashes;
mod dead;
mod depth;
mod fence;
mod groups;
mod late;
mod put;
mod restart;
mod retry;
mod settle;
mod tokens;
mod unknown_outcome;
mod waiting;

use crate::queue::case::Case;

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    [
        abandon::cases(),
        claim::cases(),
        crashes::cases(),
        dead::cases(),
        depth::cases(),
        fence::cases(),
        groups::cases(),
        late::cases(),
        put::cases(),
        restart::cases(),
        retry::cases(),
        settle::cases(),
        tokens::cases(),
        unknown_outcome::cases(),
        waiting::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
