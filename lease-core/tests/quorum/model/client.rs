//! One acquisition through the quorum: what `compose/quorum` does.

use super::node::TTL;
use super::{MAJORITY, Rules};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    First,
    Second,
    Held,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) phase: Phase,
    /// Which attempt of this owner: answers to earlier ones are not heard.
    pub(crate) attempt: u8,
    /// When the present attempt was sent.
    pub(crate) sent: u8,
    pub(crate) token: u8,
    pub(crate) deadline: u8,
    /// When the renewal was sent, plus one; 0 is never.
    pub(crate) renewal: u8,
    /// The fence that was done before the acquisition was sent.
    pub(crate) floor: u8,
    /// The same of the renewal.
    pub(crate) renewal_floor: u8,
}

/// What a client knows of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seen {
    /// The token granted in the first round; 0 is none.
    pub(crate) vote: u8,
    /// It stands at the client's token.
    pub(crate) there: bool,
    pub(crate) renewed: bool,
    /// It does not have the grant, and no heal was sent yet.
    pub(crate) lost: bool,
    /// Not asked in the first round.
    pub(crate) aside: bool,
}

impl Client {
    pub(crate) fn new(phase: Phase) -> Self {
        Self {
            phase,
            attempt: 0,
            sent: 0,
            token: 0,
            deadline: 0,
            renewal: 0,
            floor: 0,
            renewal_floor: 0,
        }
    }

    pub(crate) fn believes(&self, now: u8) -> bool {
        self.phase == Phase::Held && now < self.deadline
    }

    /// A renewal moves the deadline.
    pub(crate) fn confirm(&mut self, now: u8) {
        if now < self.deadline {
            self.deadline = self.deadline.max(self.renewal - 1 + TTL);
        }
    }
}

pub(crate) fn majority(rules: Rules) -> usize {
    if rules.majority {
        MAJORITY
    } else {
        MAJORITY - 1
    }
}

/// The token that a majority has already.
pub(crate) fn agreed(votes: &[u8]) -> Option<u8> {
    let same = |token: u8| votes.iter().filter(|t| **t == token).count();
    let mut all = votes.iter().copied();
    all.find(|t| *t > 0 && same(*t) >= MAJORITY)
}

/// That token, or else the largest.
pub(crate) fn token(votes: &[u8]) -> u8 {
    agreed(votes)
        .or(votes.iter().copied().max())
        .unwrap_or_default()
}
