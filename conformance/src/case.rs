//! One rule of the contract as a named case, and what a store must claim for
//! the case to apply.

use std::time::Duration;

use futures_util::future::BoxFuture;
use lease_core::{CrashRelease, Exclusion, ExpiryJudge, Guarantees, Ttl, WaiterOrder, WakeUps};

use crate::context::Ctx;
use crate::failure::Outcome;
use crate::fixture::Store;
use crate::runner::CaseResult;

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
    ExclusionSurvivesDataLoss,
    TokensSurviveDataLossItself,
    Pause,
    Network,
    Spoiling,
    SpoiledListing,
    FifoWaiters,
    /// No hook can show these: such a case stands for the claim and never runs.
    ReachBeyondProcess,
    ExclusionSurvivesFailover,
    ExclusionSurvivesClockStep,
    TokensSurviveFailover,
    TokensSurviveClockStep,
    SessionRelease,
}

/// Why a case is left out although the store claims what it is about.
pub(crate) const NOT_SHOWN: &str =
    "claimed, and not shown by this suite (the fixture has no hook for it)";

const NO_SPOILING: &str = "the fixture cannot put foreign values into the store";

/// The facts that decide which cases apply.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    guarantees: Guarantees,
    tombstone_retention: Option<Duration>,
    hooks: Hooks,
}

/// Which hooks the fixture offers.
#[derive(Clone, Copy, Debug)]
struct Hooks {
    restart: bool,
    lose_data: bool,
    pause: bool,
    network: bool,
    spoiling: bool,
}

impl Claims {
    pub(crate) fn of(guarantees: Guarantees, store: &dyn Store) -> Self {
        Self {
            guarantees,
            tombstone_retention: store.tombstone_retention(),
            hooks: Hooks {
                restart: store.restart().is_some(),
                lose_data: store.lose_data().is_some(),
                pause: store.pause().is_some(),
                network: store.network().is_some(),
                spoiling: store.spoiling().is_some(),
            },
        }
    }

    /// What comes of a case with this need without running it, if it does not
    /// apply.
    pub(crate) fn lacks(&self, need: Need) -> Option<CaseResult> {
        if let Some((claimed, not_claimed)) = self.beyond_the_suite(need) {
            return Some(match claimed {
                true => CaseResult::NotShown(NOT_SHOWN),
                false => CaseResult::NotClaimed(not_claimed),
            });
        }
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
            Need::FifoWaiters => (
                claims.waiter_order == WaiterOrder::Fifo,
                "not claimed: an order of waiters",
            ),
            Need::Pause => (self.hooks.pause, "the fixture cannot pause the store"),
            Need::Network => (
                self.hooks.network,
                "the fixture has no hands on the network",
            ),
            Need::Spoiling => (self.hooks.spoiling, NO_SPOILING),
            Need::SpoiledListing if !self.hooks.spoiling => (false, NO_SPOILING),
            Need::SpoiledListing => (claims.listing, "not claimed: listing"),
            _ => (true, ""),
        };
        (!holds).then_some(CaseResult::NotClaimed(reason))
    }

    /// Of what this suite, with this fixture, cannot show: whether the store
    /// claims it, and the words for when it does not.
    fn beyond_the_suite(&self, need: Need) -> Option<(bool, &'static str)> {
        let claims = &self.guarantees;
        let (exclusion, tokens) = (claims.exclusion_survives, claims.tokens_survive);
        let Hooks {
            restart, lose_data, ..
        } = self.hooks;
        Some(match need {
            Need::ExclusionSurvivesRestart if !restart || !exclusion.restart => (
                exclusion.restart,
                "not claimed: exclusion survives a restart",
            ),
            Need::TokensSurviveRestart if !restart || !tokens.restart => {
                (tokens.restart, "not claimed: tokens survive a restart")
            }
            Need::ReachBeyondProcess => (
                claims.exclusion != Exclusion::Process,
                "not claimed: exclusion beyond one process",
            ),
            Need::ExclusionSurvivesDataLoss if !lose_data || !exclusion.data_loss => (
                exclusion.data_loss,
                "not claimed: exclusion survives data loss",
            ),
            Need::ExclusionSurvivesFailover => (
                exclusion.failover,
                "not claimed: exclusion survives a failover",
            ),
            Need::ExclusionSurvivesClockStep => (
                exclusion.clock_step,
                "not claimed: exclusion survives a clock step",
            ),
            Need::TokensSurviveDataLossItself if !lose_data || !tokens.data_loss => {
                (tokens.data_loss, "not claimed: tokens survive data loss")
            }
            Need::TokensSurviveFailover => {
                (tokens.failover, "not claimed: tokens survive a failover")
            }
            Need::TokensSurviveClockStep => (
                tokens.clock_step,
                "not claimed: tokens survive a clock step",
            ),
            Need::SessionRelease => (
                claims.crash_release != CrashRelease::Ttl,
                "not claimed: a lost session frees the key",
            ),
            _ => return None,
        })
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
