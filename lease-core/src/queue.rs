//! The local queue: waiters of one client on one key, first come first served.
//!
//! Only the head asks the store, so that two thousand tasks cost the store no
//! more than one. The subscription goes from head to head, and the queue knows
//! the client's own lease of the key: while that is held there is nothing to
//! ask.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::{MutexGuard as Turn, Notify};

use crate::acquire::WakeUps;
use crate::clock::Moment;
use crate::key::Key;
use crate::lease::{Held, Word};

/// The queues of one client.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    slots: Mutex<HashMap<Key, Slot>>,
}

/// What a client knows of one key. There is one while somebody waits for it or
/// it is held, so what only waiters need is apart.
#[derive(Debug, Default)]
struct Slot {
    line: Option<Arc<Line>>,
    /// Counted under the lock: the last to leave must know that it is the last.
    places: usize,
    /// The lease of this client that holds the key. Weak: knowing of a lease
    /// must not keep it.
    own: Option<Weak<Held>>,
}

#[derive(Debug, Default)]
struct Line {
    /// Given out in the order of asking: whoever has it is the head.
    turn: tokio::sync::Mutex<WakeUps>,
    freed: Notify,
}

/// A place in the queue of one key. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Place {
    lines: Arc<Lines>,
    key: Key,
    line: Arc<Line>,
}

impl Slot {
    fn notify(&self) {
        if let Some(line) = &self.line {
            line.freed.notify_one();
        }
    }

    /// Forgets the lease if it is this one; whether it was.
    fn forget(&mut self, held: &Held) -> bool {
        let known = self.own.as_ref();
        let this = known.is_some_and(|own| std::ptr::eq(own.as_ptr(), held));
        if this {
            self.own = None;
        }
        this
    }

    fn is_idle(&self) -> bool {
        self.places == 0 && self.own.is_none()
    }
}

impl Lines {
    fn slots(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.slots.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Joins the queue of `key`.
    pub(crate) fn join(self: &Arc<Self>, key: &Key) -> Place {
        let mut slots = self.slots();
        let slot = slots.entry(key.clone()).or_default();
        slot.places += 1;
        Place {
            lines: Arc::clone(self),
            key: key.clone(),
            line: Arc::clone(slot.line.get_or_insert_default()),
        }
    }

    /// A lease of this client holds its key from now on.
    pub(crate) fn hold(&self, held: &Arc<Held>) {
        let mut slots = self.slots();
        slots.entry(held.key.clone()).or_default().own = Some(Arc::downgrade(held));
    }

    /// The hold of a lease is over, which does not say that the key is free.
    /// Tells the head unless it was told before.
    pub(crate) fn over(&self, held: &Held) {
        self.change(&held.key, |slot| {
            if slot.forget(held) {
                slot.notify();
            }
        });
    }

    /// A release was answered: tells the head.
    pub(crate) fn released(&self, held: &Held) {
        self.change(&held.key, |slot| {
            slot.forget(held);
            slot.notify();
        });
    }

    /// Tells the head of the queue of `key` that this client may have freed it
    /// by abandoning an owner.
    pub(crate) fn freed(&self, key: &Key) {
        self.change(key, |slot| slot.notify());
    }

    /// Changes what is known of `key`, if anything is.
    fn change(&self, key: &Key, change: impl FnOnce(&mut Slot)) {
        let mut slots = self.slots();
        if let Some(slot) = slots.get_mut(key) {
            change(slot);
            if slot.is_idle() {
                slots.remove(key);
            }
        }
    }

    /// The lease of this client that holds `key`, as far as is known.
    fn own(&self, key: &Key) -> Option<Arc<Held>> {
        self.slots().get(key)?.own.as_ref()?.upgrade()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.slots().len()
    }
}

impl Place {
    /// Waits until everybody before us has left, and takes over what they
    /// heard with.
    ///
    /// # Cancel safety
    /// Dropping the future gives the turn up; the place stays until it is
    /// dropped too.
    pub(crate) async fn turn(&self) -> Turn<'_, WakeUps> {
        self.line.turn.lock().await
    }

    /// Resolves when this client may have freed the key: its lease is over, or
    /// an owner was abandoned. Also when that was before a turn that has used
    /// it already, so look again before asking.
    pub(crate) async fn freed(&self) {
        self.line.freed.notified().await;
    }

    /// The word of this client's own lease, while that holds the key.
    pub(crate) fn word(&self, now: Moment) -> Option<Word> {
        // Not under the lock: this may be the last of that lease.
        let own = self.lines.own(&self.key);
        own?.word(now)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lines.change(&self.key, |slot| {
            slot.places -= 1;
            if slot.places == 0 {
                // Our own reference to it outlives the lock.
                slot.line = None;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn turns_come_in_the_order_of_asking_and_nothing_stays() {
        let (lines, key) = (Arc::new(Lines::default()), Key::new("k").unwrap());
        let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
        let first = lines.join(&key);
        let turn = first.turn().await;
        let mut tasks = Vec::new();
        for n in 0..50 {
            let (place, tx) = (lines.join(&key), tx.clone());
            tasks.push(tokio::spawn(async move {
                let _turn = place.turn().await;
                tx.send(n).unwrap();
            }));
            tokio::task::yield_now().await;
        }
        // One in the middle gives up; nobody behind it is lost.
        tasks[20].abort();
        drop(turn);
        drop(first);
        drop(tx);
        let mut served = Vec::new();
        while let Some(n) = rx.recv().await {
            served.push(n);
        }
        let expected: Vec<i32> = (0..50).filter(|n| *n != 20).collect();
        assert_eq!(served, expected);
        for task in tasks {
            let _ = task.await;
        }
        assert_eq!(lines.len(), 0);
    }

    #[test]
    fn places_that_are_left_at_the_same_time_leave_nothing() {
        let (lines, key) = (Arc::new(Lines::default()), Key::new("k").unwrap());
        for _ in 0..2_000 {
            let places = [lines.join(&key), lines.join(&key)];
            std::thread::scope(|scope| {
                for place in places {
                    scope.spawn(move || drop(place));
                }
            });
            assert_eq!(lines.len(), 0);
        }
    }
}
