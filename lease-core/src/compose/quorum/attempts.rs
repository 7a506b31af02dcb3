//! The attempts of one owner: one at a time, and what the earlier ones tried.
//!
//! Two of one client at once might bring the nodes to two tokens, and a request of
//! an earlier one may arrive after a later one has agreed on a token: it must not
//! be for a higher one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backend::TOMBSTONE_RETENTION;
use crate::owner::Owner;
use crate::token::Token;

/// The most that are remembered after they ended without an answer; beyond that the
/// oldest are forgotten.
const MOST: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Attempts {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    of: HashMap<Owner, Attempt>,
    /// Those that ended without an answer, by age; an owner may stand here twice.
    ages: VecDeque<(Instant, Owner)>,
}

#[derive(Debug)]
struct Attempt {
    under_way: bool,
    /// Of one that ended without an answer.
    until: Option<Instant>,
    tried: Option<Token>,
}

impl Attempts {
    fn state(&self) -> MutexGuard<'_, State> {
        // Plain collections; one that lacks an entry of the other is only forgetful.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits until no other attempt of this owner is under way. The turn ends when
    /// it is dropped.
    pub(super) async fn turn(&self, owner: Owner) -> Turn<'_> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if self.state().begin(owner) {
                let attempts = self;
                return Turn { attempts, owner };
            }
            changed.await;
        }
    }

    /// The owner ended.
    pub(super) fn forget(&self, owner: Owner) {
        let mut state = self.state();
        match state.of.get_mut(&owner) {
            Some(attempt) if attempt.under_way => attempt.tried = None,
            _ => drop(state.of.remove(&owner)),
        }
    }
}

/// The right to ask for an owner.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    attempts: &'a Attempts,
    owner: Owner,
}

impl Turn<'_> {
    /// The token that nodes were last asked for, exactly.
    pub(super) fn tried(&self) -> Option<Token> {
        self.attempts.state().of.get(&self.owner)?.tried
    }

    /// Nodes are about to be asked for exactly this.
    pub(super) fn tries(&self, token: Token) {
        if let Some(attempt) = self.attempts.state().of.get_mut(&self.owner) {
            attempt.tried = attempt.tried.max(Some(token));
        }
    }

    /// It was answered: nothing of it need be remembered here.
    pub(super) fn answered(self) {
        self.attempts.state().of.remove(&self.owner);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.attempts.state().end(self.owner);
        self.attempts.changed.notify_waiters();
    }
}

impl State {
    /// Whether it may begin: no other one is under way.
    fn begin(&mut self, owner: Owner) -> bool {
        if let Some(attempt) = self.of.get_mut(&owner) {
            let is_free = !attempt.under_way;
            attempt.under_way = true;
            return is_free;
        }
        let attempt = Attempt {
            under_way: true,
            until: None,
            tried: None,
        };
        self.of.insert(owner, attempt);
        true
    }

    /// It ended, without an answer if it is still there.
    fn end(&mut self, owner: Owner) {
        let now = Instant::now();
        let Some(attempt) = self.of.get_mut(&owner) else {
            return;
        };
        let until = now + TOMBSTONE_RETENTION;
        attempt.under_way = false;
        attempt.until = Some(until);
        self.ages.push_back((until, owner));
        while let Some(&(until, oldest)) = self.ages.front()
            && (until <= now || self.ages.len() > MOST)
        {
            self.ages.pop_front();
            let is_over = |attempt: &Attempt| !attempt.under_way && attempt.until == Some(until);
            if self.of.get(&oldest).is_some_and(is_over) {
                self.of.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: u128) -> Owner {
        Owner::from_bytes(n.to_be_bytes())
    }

    #[tokio::test(start_paused = true)]
    async fn one_attempt_of_an_owner_follows_the_other() {
        let (attempts, token) = (Attempts::default(), Token::new(7).unwrap());
        let first = attempts.turn(owner(1)).await;
        first.tries(token);
        let second = async {
            let turn = attempts.turn(owner(1)).await;
            assert_eq!(turn.tried(), Some(token));
            turn.answered();
        };
        let dropped = async {
            assert_eq!(attempts.turn(owner(2)).await.tried(), None);
            drop(first);
        };
        tokio::join!(second, dropped);
        assert_eq!(attempts.turn(owner(1)).await.tried(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let attempts = Attempts::default();
        for i in 0..MOST as u128 + 9 {
            drop(attempts.turn(owner(i)).await);
        }
        assert_eq!(attempts.state().of.len(), MOST);
        attempts.turn(owner(MOST as u128)).await.answered();
        attempts.forget(owner(MOST as u128 + 1));
        assert_eq!(attempts.state().of.len(), MOST - 2);
    }
}
