//! Owners that were told *no* while something of theirs may still stand.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard};

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::backend::TOMBSTONE_RETENTION;
use crate::owner::Owner;
use crate::token::Token;

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
    /// The highest tokens of which a release may be under way, and by age.
    released: HashMap<Owner, Token>,
    ages: VecDeque<(Instant, Owner)>,
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

    /// Releases of the owner's grants up to this token may be under way, while it
    /// may ask again.
    pub(super) fn released_up_to(&self, owner: Owner, token: Token) {
        let now = Instant::now();
        let mut state = self.state();
        while let Some(&(until, oldest)) = state.ages.front()
            && (until <= now || state.ages.len() >= MOST)
        {
            state.ages.pop_front();
            state.released.remove(&oldest);
        }
        let highest = state.released.get(&owner).map_or(token, |t| token.max(*t));
        if state.released.insert(owner, highest).is_none() {
            state.ages.push_back((now + TOMBSTONE_RETENTION, owner));
        }
    }

    /// The token that the owner's next one must be above.
    pub(super) fn released(&self, owner: Owner) -> Option<Token> {
        self.state().released.get(&owner).copied()
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
