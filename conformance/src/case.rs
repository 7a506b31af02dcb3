//! One rule of the contract as a named case, and what a store must claim for
//! the case to apply.

use std::time::Duration;

use futures_util::future::BoxFuture;
use lease_core::{ExpiryJudge, Guarantees, Ttl, WakeUps};

use crate::context::Ctx;
use crate::failure::Outcome;
use crate::fixture::Store;

/// A rule of the contract.
pub(crate) struct Case {
    /// `group::rule`.
    pub(crate) name: &'static str,
    /// The rule in words, for the author of a backend that breaks it.
    pub(crate) rule: &'static str,
    pub(crate) needs: Need,
    pub(crate) run: for<'a> fn(&'a Ctx) -> BoxFuture<'a, Outcome>,
}

/// What a store must claim, or a fixture offer, for a case to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    Listing,
    WakeUps,
    /// Expiry is judged by the store's own clock.
    StoreClock,
    /// A TTL range narrower than the contract's.
    NarrowTtl,
    /// A key limit below the contract's.
    NarrowKeys,
    TokensSurviveDataLoss,
    TombstoneRetention,
    /// Longer than any case.
    LastingTombstones,
    ExclusionSurvivesRestart,
    TokensSurviveRestart,
}

/// The facts that decide which cases apply.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    guarantees: Guarantees,
    tombstone_retention: Option<Duration>,
    restart: bool,
}

impl Claims {
    pub(crate) fn of(guarantees: Guarantees, store: &dyn Store) -> Self {
        Self {
            guarantees,
            tombstone_retention: store.tombstone_retention(),
            restart: store.restart().is_some(),
        }
    }

    /// Why a case with this need does not apply, if it does not.
    pub(crate) fn lacks(&self, need: Need) -> Option<&'static str> {
        let claims = &self.guarantees;
        let (holds, reason) = match need {
            Need::Nothing => (true, ""),
            Need::Listing => (claims.listing, "not claimed: listing"),
            Need::WakeUps => (
                claims.wake_ups != WakeUps::None,
                "not claimed: wake-ups by push or poll",
            ),
            Need::StoreClock => (
                claims.expiry == ExpiryJudge::StoreClock,
                "not claimed: expiry by the store's clock",
            ),
            Need::NarrowTtl => (
                claims.ttl.min > Ttl::MIN.get() || claims.ttl.max < Ttl::MAX.get(),
                "the store takes every TTL",
            ),
            Need::NarrowKeys => (
                claims.max_key_bytes < lease_core::MAX_KEY_BYTES,
                "the store takes every key",
            ),
            Need::TokensSurviveDataLoss => (
                claims.tokens_survive.data_loss,
                "not claimed: tokens survive data loss",
            ),
            Need::TombstoneRetention => (
                self.tombstone_retention.is_some(),
                "the fixture has no short tombstone retention",
            ),
            Need::LastingTombstones => (
                self.tombstone_retention.is_none(),
                "the fixture has a short tombstone retention, which has its own case",
            ),
            Need::ExclusionSurvivesRestart if !claims.exclusion_survives.restart => {
                (false, "not claimed: exclusion survives a restart")
            }
            Need::TokensSurviveRestart if !claims.tokens_survive.restart => {
                (false, "not claimed: tokens survive a restart")
            }
            Need::ExclusionSurvivesRestart | Need::TokensSurviveRestart => {
                (self.restart, "the fixture cannot restart the store")
            }
        };
        (!holds).then_some(reason)
    }
}

/// Lists the cases of one group: the function, what it needs, the rule.
macro_rules! group {
    ($group:literal; $($case:ident $([$need:ident])?: $rule:literal;)+) => {
        pub(super) fn cases() -> Vec<crate::case::Case> {
            vec![$(crate::case::Case {
                name: concat!($group, "::", stringify!($case)),
                rule: $rule,
                needs: crate::case::group!(@need $($need)?),
                run: |ctx| Box::pin($case(ctx)),
            }),+]
        }
    };
    (@need) => { crate::case::Need::Nothing };
    (@need $need:ident) => { crate::case::Need::$need };
}
pub(crate) use group;
