//! Which nodes stand at the token that was agreed on.

use std::collections::BTreeSet;

use super::Answer;
use crate::backend::{AcquireOutcome, RefusedReason};
use crate::compose::quorum::Inner;
use crate::compose::quorum::votes::{Votes, words};
use crate::error::StoreError;
use crate::token::Token;

/// Which nodes stand at the token.
pub(super) struct Standing {
    pub(super) token: Token,
    majority: usize,
    pub(super) there: BTreeSet<usize>,
    /// Asked for exactly the token.
    pub(super) asked: usize,
    pub(super) above: Vec<(usize, Token)>,
    /// Somebody else still has these, or has asked in vain and gives it back.
    pub(super) held: Vec<usize>,
    failed: Vec<(usize, StoreError)>,
    refused: Option<RefusedReason>,
    overtaken: bool,
}

/// No majority stands at the token.
pub(super) struct Apart {
    pub(super) error: StoreError,
    /// A copy of this acquire is at a higher token: asking again shows which.
    pub(super) overtaken: bool,
}

impl Standing {
    pub(super) fn new(inner: &Inner, token: Token) -> Self {
        Self {
            token,
            majority: inner.majority,
            there: BTreeSet::new(),
            asked: 0,
            above: Vec::new(),
            held: Vec::new(),
            failed: Vec::new(),
            refused: None,
            overtaken: false,
        }
    }

    /// A node granted `token`; whether it must be asked again.
    pub(super) fn put(&mut self, i: usize, token: Token) -> bool {
        if token == self.token {
            self.there.insert(i);
        } else if token > self.token {
            self.above.push((i, token));
        }
        let again = token < self.token;
        self.asked += usize::from(again);
        again
    }

    /// The answer of a node that was asked for exactly the token.
    pub(super) fn answered(&mut self, i: usize, answer: Answer, exact: bool) {
        self.asked -= 1;
        match answer {
            Ok(AcquireOutcome::Granted(granted)) if granted.token == self.token || !exact => {
                self.there.insert(i);
            }
            Ok(outcome) => {
                if matches!(outcome, AcquireOutcome::Held(_)) {
                    self.held.push(i);
                }
                let said = words(&outcome).unwrap_or_else(|| "granted another token".into());
                self.failed.push((i, StoreError::unavailable(said)));
                let AcquireOutcome::Refused(reason) = outcome else {
                    return;
                };
                match reason {
                    RefusedReason::Abandoned | RefusedReason::Revoked => {
                        self.refused = Some(reason);
                    }
                    RefusedReason::BelowMark { .. } => self.overtaken = true,
                    _ => {}
                }
            }
            Err(error) => self.failed.push((i, error)),
        }
    }

    pub(super) fn is_hopeless(&self, votes: &Votes) -> bool {
        self.there.len() + self.asked + votes.awaited() < self.majority
    }

    /// The key slipped away between the rounds.
    pub(super) fn none(self, inner: &Inner) -> Result<AcquireOutcome, Apart> {
        let failed: Vec<_> = self.failed.iter().map(|(i, e)| (*i, e)).collect();
        match self.refused {
            // A fence, or an abandonment: this owner can have nothing any more.
            Some(reason) => Ok(AcquireOutcome::Refused(reason)),
            // Its grants stand on some nodes; the caller repeats or abandons.
            None => Err(Apart {
                error: inner.no_majority("to agree on a token", &failed, true),
                overtaken: self.overtaken,
            }),
        }
    }
}
