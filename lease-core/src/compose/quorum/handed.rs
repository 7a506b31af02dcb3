//! Leases that this client handed out: who releases one ends its owner for good.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::owner::Owner;
use crate::retry::ATTEMPT_LIMIT;
use crate::token::Token;

/// The most leases that are remembered. Of one that is forgotten, what a node
/// still has after a release that failed there waits out its TTL.
const MOST: usize = 100_000;
/// The most that are remembered after their release, and for how long: until
/// nothing that was sent for them is under way.
const MOST_OVER: usize = 16_384;
const OVER_FOR: Duration = ATTEMPT_LIMIT.saturating_mul(3);

/// A node may have another token for an owner than the one handed out, may have
/// missed its release, or may yet be brought to the token by a request that was
/// under way. Only the knowledge that the owner is over lets it be abandoned there:
/// a release that names some token by mistake must change nothing.
#[derive(Debug, Default)]
pub(super) struct Handed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    held: HashMap<Owner, (Token, u64)>,
    /// The same by age.
    order: BTreeMap<u64, Owner>,
    next: u64,
    over: HashMap<Owner, Token>,
    /// The same by age; an owner may stand here twice.
    until: VecDeque<(Instant, Owner)>,
}

impl Handed {
    fn state(&self) -> MutexGuard<'_, State> {
        // Collections of plain values; one that lacks an entry of another is
        // only forgetful.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A majority is at `token`.
    pub(super) fn out(&self, owner: Owner, token: Token) {
        let mut state = self.state();
        state.forget(owner);
        if state.held.len() >= MOST
            && let Some((_, oldest)) = state.order.pop_first()
        {
            state.held.remove(&oldest);
        }
        let number = state.next;
        state.next += 1;
        state.held.insert(owner, (token, number));
        state.order.insert(number, owner);
    }

    /// What was handed out and not released or abandoned.
    pub(super) fn token(&self, owner: Owner) -> Option<Token> {
        self.state().held.get(&owner).map(|(token, _)| *token)
    }

    /// Its holder releases it: whether exactly this was handed out here.
    pub(super) fn ends(&self, owner: Owner, token: Token) -> bool {
        let mut state = self.state();
        if state.over.get(&owner) == Some(&token) {
            return true;
        }
        if state.held.get(&owner).map(|(token, _)| *token) != Some(token) {
            return false;
        }
        state.forget(owner);
        let now = Instant::now();
        while let Some(&(until, oldest)) = state.until.front()
            && (until <= now || state.until.len() >= MOST_OVER)
        {
            state.until.pop_front();
            state.over.remove(&oldest);
        }
        state.over.insert(owner, token);
        state.until.push_back((now + OVER_FOR, owner));
        true
    }

    /// It was abandoned.
    pub(super) fn forget(&self, owner: Owner) {
        self.state().forget(owner);
    }

    /// Whether it was released a short while ago.
    pub(super) fn is_over(&self, owner: Owner) -> bool {
        self.state().over.contains_key(&owner)
    }
}

impl State {
    fn forget(&mut self, owner: Owner) {
        if let Some((_, number)) = self.held.remove(&owner) {
            self.order.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: u128) -> Owner {
        Owner::from_bytes(n.to_be_bytes())
    }

    fn token(n: u64) -> Token {
        Token::new(n).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn only_exactly_what_was_handed_out_ends() {
        let handed = Handed::default();
        handed.out(owner(1), token(7));
        handed.out(owner(1), token(8));
        assert!(!handed.ends(owner(1), token(7)) && !handed.ends(owner(2), token(8)));
        assert!(!handed.is_over(owner(1)));
        // A release is repeated until it is answered.
        for _ in 0..2 {
            assert!(handed.ends(owner(1), token(8)));
            assert!(handed.is_over(owner(1)));
        }
        tokio::time::advance(OVER_FOR).await;
        handed.out(owner(2), token(9));
        assert!(handed.ends(owner(2), token(9)));
        assert!(!handed.is_over(owner(1)));
    }

    #[test]
    fn memory_is_bounded() {
        let handed = Handed::default();
        for i in 0..MOST as u128 + 9 {
            handed.out(owner(i), token(1));
        }
        assert!(!handed.ends(owner(8), token(1)));
        for i in 9..MOST as u128 + 9 {
            assert!(handed.ends(owner(i), token(1)));
        }
        let state = handed.state();
        assert!(state.held.is_empty() && state.order.is_empty());
        assert_eq!(
            (state.over.len(), state.until.len()),
            (MOST_OVER, MOST_OVER)
        );
    }
}
