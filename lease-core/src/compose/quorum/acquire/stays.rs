//! A token that was agreed on stays: an acquire that is repeated comes to it again,
//! or its outcome is unknown.
//!
//! Nodes do not tell whether a grant is of an earlier attempt. This client knows
//! what it handed out and what it tried; where it has tried nothing, the shape of a
//! token tells that somebody else has brought nodes to it.

use std::time::Duration;

use futures_util::stream::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::{Round, slack};
use crate::compose::quorum::Inner;
use crate::compose::quorum::attempts::Turn;
use crate::error::StoreError;
use crate::owner::Owner;
use crate::token::{Token, TokenRule};

/// How long an acquire waits for nodes that may show the token of a lease: the
/// outcome is unknown without them.
const PATIENCE: Duration = Duration::from_secs(1);

/// What this client knows of earlier attempts of an owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Earlier {
    /// The lease that was handed out, which was not released.
    lease: Option<Token>,
    /// The highest token that nodes were asked for and may yet be brought to.
    tried: Option<Token>,
}

impl Earlier {
    pub(super) fn of(inner: &Inner, owner: Owner, turn: &Turn<'_>) -> Self {
        Self {
            lease: inner.handed.token(owner),
            tried: turn.tried(),
        }
    }
}

pub(super) fn unknown() -> StoreError {
    StoreError::unknown_outcome(
        "a lease of this owner may stand, and too few nodes answered to tell its token; \
         ask again, or abandon the owner",
    )
}

impl Round {
    /// Hears the nodes that may show which token stands, if that does not take long.
    pub(super) async fn wait_for_what_stays(&mut self) {
        if self.votes.yes(&self.inner) < self.inner.majority {
            return;
        }
        if self.is_hidden() {
            let later = std::mem::take(&mut self.later);
            self.ask_for_next(later);
        }
        let until = Instant::now() + PATIENCE;
        while self.is_hidden()
            && let Ok(Some((i, answer))) = timeout_at(until, self.first.next()).await
        {
            self.votes.put(i, answer);
        }
    }

    /// The token of an earlier attempt, where nodes must come to that again; the
    /// largest that was granted is `largest`.
    ///
    /// # Errors
    /// When nodes are above one that a majority may stand at.
    pub(super) fn agreed_before(&self, largest: Token) -> Result<Option<Token>, StoreError> {
        if self.is_hidden() {
            return Err(unknown());
        }
        let lease = self.lease();
        // What is under way is for that token, and must not come to be above it.
        Ok(lease
            .or(self.earlier.tried)
            .filter(|token| *token >= largest))
    }

    /// Whether a lease of this owner may stand that no majority of answers shows.
    pub(super) fn may_hide_a_lease(&self) -> bool {
        self.lease().is_some() || self.brought().next().is_some()
    }

    /// What was handed out, while a majority may stand at it.
    fn lease(&self) -> Option<Token> {
        let may_stand = |token: &Token| self.votes.may_stand(&self.inner, *token);
        self.earlier.lease.filter(may_stand)
    }

    /// Whether a majority may stand at a token that nodes were brought to, below
    /// what others name: which it is only more answers tell.
    fn is_hidden(&self) -> bool {
        let Some(largest) = self.open() else {
            return false;
        };
        if let Some(lease) = self.lease() {
            return lease < largest;
        }
        self.brought().any(|token| token < largest)
    }

    /// The tokens that somebody else has brought nodes to, where a majority may stand
    /// at them.
    fn brought(&self) -> impl Iterator<Item = Token> {
        let tokens = self.votes.granted().map(|(_, granted)| granted.token);
        tokens.filter(|token| {
            self.earlier.tried.is_none()
                && slack::is_whole_step(*token)
                && self.votes.may_stand(&self.inner, *token)
        })
    }

    /// The largest token granted, where nothing tells yet which one it will be.
    fn open(&self) -> Option<Token> {
        let is_next = matches!(self.request.rule, TokenRule::Next { .. });
        let agreed = self.votes.agreed(self.inner.majority);
        let tokens = self.votes.granted().map(|(_, granted)| granted.token);
        tokens
            .max()
            .filter(|_| is_next && agreed.is_none() && self.inner.rules.second_round)
    }
}
