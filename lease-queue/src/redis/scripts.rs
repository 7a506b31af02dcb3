//! The scripts, with a store's settings.

use std::time::Duration;

use lease_core::{WAITER_TURN, place_lasts};
use lease_redis::parts::{Program, Settings};

const COMMON: &str = include_str!("lua/common.lua");
const KEYS: &str = include_str!("lua/keys_common.lua");
const LINE: &str = include_str!("lua/line.lua");

/// Which script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Put,
    Claim,
    Key,
    Settle,
    Abandon,
    Fence,
    Requeue,
    Look,
    Rights,
}

impl Op {
    /// For errors.
    pub(super) fn doing(self) -> &'static str {
        match self {
            Self::Put => "put into a queue",
            Self::Claim => "claim from a queue",
            Self::Key => "claim a key of a queue",
            Self::Settle => "settle a claim",
            Self::Abandon => "abandon an owner",
            Self::Fence => "fence a lane of a queue",
            Self::Requeue => "put a dead item back",
            Self::Look => "look at a queue",
            Self::Rights => "look at the user's rights",
        }
    }
}

#[derive(Debug)]
pub(super) struct Scripts {
    put: Program,
    claim: Program,
    key: Program,
    settle: Program,
    abandon: Program,
    fence: Program,
    requeue: Program,
    look: Program,
    rights: Program,
}

impl Scripts {
    pub(super) fn new(settings: &Settings) -> Self {
        let (marks, tombs) = (
            settings.mark_retention.as_micros(),
            settings.tombstone_retention.as_micros(),
        );
        let (turn, most_place) = (
            WAITER_TURN.as_micros(),
            place_lasts(Duration::MAX).as_micros(),
        );
        let publish = if settings.cluster {
            "SPUBLISH"
        } else {
            "PUBLISH"
        };
        let program = |parts: &[&str]| {
            // In the text, not as arguments of each call.
            let code = parts.concat();
            Program::new(format!(
                "local marks, tombs, publish = {marks}, {tombs}, '{publish}'\n\
                 local TURN, MOST_PLACE = {turn}, {most_place}\n{code}"
            ))
        };
        Self {
            put: program(&[COMMON, include_str!("lua/put.lua")]),
            claim: program(&[COMMON, include_str!("lua/claim.lua")]),
            key: program(&[COMMON, LINE, KEYS, include_str!("lua/key.lua")]),
            settle: program(&[COMMON, include_str!("lua/settle.lua")]),
            abandon: program(&[COMMON, LINE, include_str!("lua/abandon.lua")]),
            fence: program(&[COMMON, KEYS, include_str!("lua/fence.lua")]),
            requeue: program(&[COMMON, include_str!("lua/requeue.lua")]),
            look: program(&[COMMON, include_str!("lua/look.lua")]),
            rights: program(&[COMMON, include_str!("lua/rights.lua")]),
        }
    }

    pub(super) fn program(&self, op: Op) -> &Program {
        match op {
            Op::Put => &self.put,
            Op::Claim => &self.claim,
            Op::Key => &self.key,
            Op::Settle => &self.settle,
            Op::Abandon => &self.abandon,
            Op::Fence => &self.fence,
            Op::Requeue => &self.requeue,
            Op::Look => &self.look,
            Op::Rights => &self.rights,
        }
    }
}
