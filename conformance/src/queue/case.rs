//! One rule of the contract of queues as a named case, and what it needs.

use futures_util::future::BoxFuture;
use lease_core::WakeUps;
use lease_queue::Capabilities;

use crate::case::NOT_SHOWN;
use crate::failure::Outcome;
use crate::queue::context::Ctx;
use crate::runner::CaseResult;

/// A rule of the contract.
pub(crate) struct Case {
    /// `group::rule`.
    pub(crate) name: &'static str,
    /// The rule in words, for the author of a store that breaks it.
    pub(crate) rule: &'static str,
    pub(crate) needs: Need,
    pub(crate) run: for<'a> fn(&'a Ctx) -> BoxFuture<'a, Outcome>,
}

/// What a store must be able to do, or a fixture offer, for a case to apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    Groups,
    Delay,
    /// A completed item still keeps its deduplication key.
    DedupWindow,
    WakeUps,
    Network,
    TokensSurviveRestart,
    ExclusionSurvivesRestart,
}

/// The facts that decide which cases apply.
#[derive(Clone, Debug)]
pub(crate) struct Can {
    pub(crate) can: Capabilities,
    pub(crate) restart: bool,
    pub(crate) network: bool,
}

impl Can {
    /// What comes of a case with this need without running it, if it does not apply.
    pub(crate) fn lacks(&self, need: Need) -> Option<CaseResult> {
        let claims = &self.can.guarantees;
        let survives = match need {
            Need::TokensSurviveRestart => Some((
                claims.tokens_survive.restart,
                "not claimed: tokens survive a restart",
            )),
            Need::ExclusionSurvivesRestart => Some((
                claims.exclusion_survives.restart,
                "not claimed: exclusion survives a restart",
            )),
            _ => None,
        };
        if let Some((claimed, reason)) = survives {
            return match (claimed, self.restart) {
                (true, true) => None,
                (true, false) => Some(CaseResult::NotShown(NOT_SHOWN)),
                (false, _) => Some(CaseResult::NotClaimed(reason)),
            };
        }
        let (holds, reason) = match need {
            Need::Groups => (self.can.groups, "not claimed: groups"),
            Need::Delay => (self.can.delay, "not claimed: delays"),
            Need::DedupWindow => (
                !self.can.dedup_window.is_zero(),
                "not claimed: deduplication after completion",
            ),
            Need::WakeUps => (
                claims.wake_ups != WakeUps::None,
                "not claimed: wake-ups by push or poll",
            ),
            Need::Network => (self.network, "the fixture has no hands on the network"),
            _ => (true, ""),
        };
        (!holds).then_some(CaseResult::NotClaimed(reason))
    }
}

/// Lists the cases of one group: the function, what it needs, the rule.
macro_rules! group {
    ($group:literal; $($case:ident $([$need:ident])?: $rule:literal;)+) => {
        pub(super) fn cases() -> Vec<crate::queue::case::Case> {
            vec![$(crate::queue::case::Case {
                name: concat!($group, "::", stringify!($case)),
                rule: $rule,
                needs: crate::queue::case::group!(@need $($need)?),
                run: |ctx| Box::pin($case(ctx)),
            }),+]
        }
    };
    (@need) => { crate::queue::case::Need::Nothing };
    (@need $need:ident) => { crate::queue::case::Need::$need };
}
pub(crate) use group;
