//! What may be done to a queue, and what comes of it.

use lease_core::{FenceWhen, Label, Owner, Token, Ttl};

use crate::item::{ClaimRef, ItemId, NewItem};
use crate::name::Lane;
use crate::store::{Added, Answer, Settle, Settled};

/// A grant that its client has seen unchanged for as long as it lasts: over, if this
/// revision is still its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    pub(crate) lane: Lane,
    pub(crate) revision: u64,
}

/// A claim's grant as its client saw it last, where it may say so: see `Queue::seen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) revision: u64,
    /// How long it lasts for this client. Zero: it is over.
    pub(crate) left_us: u64,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Put(Vec<NewItem>),
    Claim {
        owner: Owner,
        ttl: Ttl,
        label: Label,
        max: usize,
        over: Vec<Over>,
    },
    Settle(Vec<OneSettle>),
    Abandon {
        owner: Owner,
        over: Vec<Over>,
    },
    Fence {
        lane: Lane,
        at_least: Token,
        when: FenceWhen,
        over: Vec<Over>,
    },
    Requeue(ItemId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OneSettle {
    pub(crate) claim: ClaimRef,
    pub(crate) settle: Settle,
    /// `None` if the claim's grant is not what its client saw last.
    pub(crate) seen: Option<Seen>,
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Added(Vec<Added>),
    /// The queue holds as much as it takes. Nothing was put.
    Full {
        items: usize,
        bytes: u64,
    },
    /// With the revision of the grants, if there are any. Of what only a claim's end
    /// makes ready, `Answer::Nothing` does not tell.
    Claimed(Answer, u64),
    /// With the revision of what was extended.
    Settled(Vec<Settled>, u64),
    Abandoned,
    Fenced(Token),
    Requeued(bool),
}
