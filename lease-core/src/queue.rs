//! The local queue: waiters of one client on one key, first come first served.
//!
//! Only the head asks the store, so that two thousand tasks cost the store no
//! more than one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::key::Key;

/// The queues of one client.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Mutex<HashMap<Key, Counted>>,
}

/// A queue, and how many places in it there are. They are counted under the
/// lock: the last to leave must know that it is the last.
#[derive(Debug)]
struct Counted {
    line: Arc<Line>,
    places: usize,
}

#[derive(Debug)]
struct Line {
    /// One permit, given out in the order of asking: whoever has it is the
    /// head.
    turn: Semaphore,
    freed: Notify,
}

/// A place in the queue of one key. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Place {
    lines: Arc<Lines>,
    key: Key,
    line: Arc<Line>,
}

impl Lines {
    /// Joins the queue of `key`.
    pub(crate) fn join(self: &Arc<Self>, key: &Key) -> Place {
        let mut lines = self.lines.lock().unwrap_or_else(|e| e.into_inner());
        let counted = lines.entry(key.clone()).or_insert_with(|| Counted {
            line: Arc::new(Line {
                turn: Semaphore::new(1),
                freed: Notify::new(),
            }),
            places: 0,
        });
        counted.places += 1;
        Place {
            lines: Arc::clone(self),
            key: key.clone(),
            line: Arc::clone(&counted.line),
        }
    }

    /// Tells the head of the queue of `key` that this client freed it.
    pub(crate) fn freed(&self, key: &Key) {
        let lines = self.lines.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(counted) = lines.get(key) {
            counted.line.freed.notify_one();
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lines.lock().unwrap().len()
    }
}

impl Place {
    /// Waits until everybody before us has left.
    ///
    /// # Cancel safety
    /// Dropping the future gives the turn up; the place stays until it is
    /// dropped too.
    pub(crate) async fn turn(&self) -> SemaphorePermit<'_> {
        match self.line.turn.acquire().await {
            Ok(permit) => permit,
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    /// Resolves when this client has freed the key.
    pub(crate) async fn freed(&self) {
        self.line.freed.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.lines.lines.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(counted) = lines.get_mut(&self.key) {
            counted.places -= 1;
            if counted.places == 0 {
                lines.remove(&self.key);
            }
        }
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
