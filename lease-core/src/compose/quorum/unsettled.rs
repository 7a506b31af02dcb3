//! Owners that were told *no* while something of theirs may still stand.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::backend::TOMBSTONE_RETENTION;
use crate::owner::Owner;

/// The most that are remembered; beyond that the oldest are forgotten. Only
/// many thousands of failed acquisitions in ten minutes come here.
const MOST: usize = 100_000;
/// How long an owner that asks again waits for what is being given back.
const PATIENCE: Duration = Duration::from_millis(500);

/// What is being given back for an owner must not meet a grant that a later
/// request of the same owner was counted in: such an owner asks no more.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Until when, and whether it is burnt for good.
    until: HashMap<Owner, (Instant, bool)>,
    order: BTreeSet<(Instant, Owner)>,
}

impl Unsettled {
    fn state(&self) -> MutexGuard<'_, State> {
        // Two plain collections that are whole after each statement that can
        // panic: none.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
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
        state.until.insert(owner, (until, false));
        state.order.insert((until, owner));
    }

    /// Nothing of it stands anywhere.
    pub(super) fn settled(&self, owner: Owner) {
        self.state().remove(owner);
        self.changed.notify_waiters();
    }

    /// It was abandoned somewhere and asks no more.
    pub(super) fn burnt(&self, owner: Owner) {
        if let Some((_, burnt)) = self.state().until.get_mut(&owner) {
            *burnt = true;
        }
        self.changed.notify_waiters();
    }

    /// Waits until nothing of the owner is being given back; `false` if it may
    /// ask no more, or if that takes long.
    pub(super) async fn may_ask(&self, owner: Owner) -> bool {
        let waiting = async {
            loop {
                let mut changed = std::pin::pin!(self.changed.notified());
                // From here on no change is missed.
                changed.as_mut().enable();
                match self.state().get(owner) {
                    None => return true,
                    Some(true) => return false,
                    Some(false) => {}
                }
                changed.await;
            }
        };
        // Hardly any owner is in there: no timer then.
        match self.state().get(owner) {
            None => return true,
            Some(true) => return false,
            Some(false) => {}
        }
        timeout(PATIENCE, waiting).await.unwrap_or(false)
    }
}

impl State {
    /// Whether it is burnt, if it is remembered.
    fn get(&self, owner: Owner) -> Option<bool> {
        let (until, burnt) = self.until.get(&owner)?;
        (Instant::now() < *until).then_some(*burnt)
    }

    fn remove(&mut self, owner: Owner) {
        if let Some((until, _)) = self.until.remove(&owner) {
            self.order.remove(&(until, owner));
        }
    }
}
