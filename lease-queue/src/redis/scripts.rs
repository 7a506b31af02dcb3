//! The scripts, with a store's settings.

use std::time::Duration;

use lease_core::{WAITER_TURN, place_lasts};
use lease_redis::parts::{Program, Settings};

/// Values alone, functions, and then the script: each within a function of its own, since
/// what a function finds outside of its own function costs nothing each time, and each
/// function and each name that it uses of its own costs a little in every call.
const BASE: &str = include_str!("lua/base.lua");
const COMMON: &str = include_str!("lua/common.lua");
const LANES: &str = include_str!("lua/lanes.lua");
const ITEMS: &str = include_str!("lua/items.lua");
const WHOLE: &str = include_str!("lua/whole.lua");
const BIRTH: &str = include_str!("lua/birth.lua");
const PLACES: &str = include_str!("lua/places.lua");
const ENDED: &str = include_str!("lua/ended.lua");
const OWNERS: &str = include_str!("lua/owners.lua");
const KEYS: &str = include_str!("lua/keys_common.lua");
const LINE: &str = include_str!("lua/line.lua");
/// What few calls need is made by those alone.
const OF_KEYS: [&str; 4] = [
    "local function of_keys()\n",
    OWNERS,
    include_str!("lua/settle_key.lua"),
    "end\n",
];
const OF_PLACES: [&str; 3] = [
    "local function of_places()\n",
    PLACES,
    "return places\nend\n",
];

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
        let program = |functions: &[&[&str]], script: &str| {
            let functions = functions.concat().concat();
            // Settings stand in the text, not in the arguments of each call.
            Program::new(format!(
                "local marks, tombs, publish = {marks}, {tombs}, '{publish}'\n\
                 local TURN, MOST_PLACE = {turn}, {most_place}\n{BASE}\
                 return (function()\n{COMMON}{functions}\
                 return (function()\n{script}end)()\nend)()\n"
            ))
        };
        let (records, whole) = ([LANES, ITEMS], [LANES, ITEMS, WHOLE]);
        Self {
            put: program(&[&whole, &[BIRTH, PLACES]], include_str!("lua/put.lua")),
            claim: program(&[&records], include_str!("lua/claim.lua")),
            key: program(
                &[&[LANES, BIRTH, OWNERS, LINE, KEYS]],
                include_str!("lua/key.lua"),
            ),
            settle: program(
                &[&records, &[ENDED], &OF_KEYS, &OF_PLACES],
                include_str!("lua/settle.lua"),
            ),
            abandon: program(&[&whole, &[OWNERS, LINE]], include_str!("lua/abandon.lua")),
            fence: program(&[&whole, &[BIRTH, KEYS]], include_str!("lua/fence.lua")),
            requeue: program(&[&whole, &[PLACES]], include_str!("lua/requeue.lua")),
            look: program(&[&whole], include_str!("lua/look.lua")),
            rights: program(&[], include_str!("lua/rights.lua")),
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
