//! The rules of the contract, one file per group.

mod abandon;
mod acquire;
mod claims;
mod contention;
mod data_loss;
mod errors;
mod exclusion;
mod expiry;
mod fence;
mod fence_blocking;
mod foreign;
mod keys;
mod late;
mod line;
mod listing;
mod network;
mod pause;
mod release;
mod renew;
mod renew_many;
mod restart;
mod retry;
mod token;
mod token_exactly;
mod ttl;
mod unknown_outcome;
mod wake_up;

use crate::case::Case;

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    [
        abandon::cases(),
        acquire::cases(),
        claims::cases(),
        contention::cases(),
        errors::cases(),
        exclusion::cases(),
        expiry::cases(),
        fence::cases(),
        fence_blocking::cases(),
        foreign::cases(),
        keys::cases(),
        late::cases(),
        line::cases(),
        listing::cases(),
        network::cases(),
        pause::cases(),
        release::cases(),
        renew::cases(),
        renew_many::cases(),
        restart::cases(),
        retry::cases(),
        token::cases(),
        token_exactly::cases(),
        ttl::cases(),
        unknown_outcome::cases(),
        wake_up::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
