//! What a lease tells those who wait for its key in its own client, so that
//! they need not ask the store.

use std::time::Duration;

use super::Held;
use crate::backend::Holder;
use crate::clock::Moment;
use crate::retry::{LOOK_AGAIN, RELEASE_PATIENCE};

/// How long after a grant a hint may still be that of the release before it.
const ECHO: Duration = Duration::from_millis(50);

/// A lease's word that it is in the way.
#[derive(Debug)]
pub(crate) struct Word {
    /// It, as the store would name it.
    pub(crate) holder: Holder,
    /// Until then a hint is taken for the echo of the release that made room
    /// for this lease.
    pub(crate) echo_until: Moment,
    /// From then on it is better to ask the store.
    pub(crate) good_until: Moment,
    /// Its release is under way: the answer says more than anything else.
    pub(crate) releasing: bool,
}

impl Held {
    /// Its word, while that is worth as much as the store's.
    ///
    /// A confirmed request is as good as a look of a waiter, so the word is
    /// good for as long as a waiter would sleep after one: the operator who
    /// fences it, and whose hint is lost, is not found out later than
    /// elsewhere.
    pub(crate) fn word(&self, now: Moment) -> Option<Word> {
        let released = self.given_up();
        let good_until = match released {
            Some(when) => when.after(RELEASE_PATIENCE),
            None => self.confirmed().after(LOOK_AGAIN).min(self.ends_by()),
        };
        if now >= good_until {
            return None;
        }
        Some(Word {
            holder: Holder {
                label: self.label.clone(),
                token: self.token,
                age: now.since(self.granted),
                remaining: self.deadline().since(now),
            },
            echo_until: self.handed_out.after(ECHO),
            good_until,
            releasing: released.is_some(),
        })
    }
}
