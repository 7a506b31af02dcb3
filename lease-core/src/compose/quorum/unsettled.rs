//! Owners that were told *no* while something of theirs may still stand.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};

use tokio::time::Instant;

use crate::backend::TOMBSTONE_RETENTION;
use crate::owner::Owner;

/// The most that are remembered; beyond that the oldest are forgotten. Only
/// many thousands of failed acquisitions in ten minutes come here.
const MOST: usize = 100_000;

/// What is being given back for an owner must not meet a grant that a later
/// request of the same owner was counted in: such an owner asks no more.
#[derive(Debug, Default)]
pub(super) struct Unsettled(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    until: HashMap<Owner, Instant>,
    order: BTreeSet<(Instant, Owner)>,
}

impl Unsettled {
    fn state(&self) -> MutexGuard<'_, State> {
        // Two plain collections that are whole after each statement that can
        // panic: none.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(super) fn add(&self, owner: Owner) {
        let now = Instant::now();
        let mut state = self.state();
        state.remove(owner);
        while let Some(&(until, oldest)) = state.order.first()
            && (until <= now || state.order.len() >= MOST)
        {
            state.remove(oldest);
        }
        let until = now + TOMBSTONE_RETENTION;
        state.until.insert(owner, until);
        state.order.insert((until, owner));
    }

    /// Nothing of it stands anywhere.
    pub(super) fn settled(&self, owner: Owner) {
        self.state().remove(owner);
    }

    pub(super) fn holds(&self, owner: Owner) -> bool {
        let until = self.state().until.get(&owner).copied();
        until.is_some_and(|until| Instant::now() < until)
    }
}

impl State {
    fn remove(&mut self, owner: Owner) {
        if let Some(until) = self.until.remove(&owner) {
            self.order.remove(&(until, owner));
        }
    }
}
