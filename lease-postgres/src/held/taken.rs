//! A connection in use, and the room that it takes.

use std::sync::Arc;

use tokio::time::Instant;

use super::Held;
use crate::connection::Up;

/// Room for one connection, given up when dropped, unless a connection has taken
/// it.
pub(super) struct Slot {
    pub(super) held: Arc<Held>,
    filled: bool,
}

impl Slot {
    pub(super) fn new(held: &Arc<Held>) -> Self {
        Self {
            held: Arc::clone(held),
            filled: false,
        }
    }

    pub(super) fn fill(mut self, up: Up) -> Taken {
        self.filled = true;
        Taken::new(&self.held, up)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.filled {
            self.held.state().open -= 1;
            self.held.changed.notify_one();
        }
    }
}

/// A connection in use. Dropped in the midst of a request, it is read to the end
/// of the answer first, or given up.
#[derive(Debug)]
pub(crate) struct Taken {
    held: Arc<Held>,
    up: Option<Up>,
    /// When it was last asked.
    sent: Instant,
}

impl Taken {
    pub(super) fn new(held: &Arc<Held>, up: Up) -> Self {
        Self {
            held: Arc::clone(held),
            up: Some(up),
            sent: Instant::now(),
        }
    }

    /// Where it belongs.
    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    /// The connection, to be asked now.
    pub(crate) fn ask(&mut self) -> Option<&mut Up> {
        self.sent = Instant::now();
        self.up.as_mut()
    }

    /// The whole answer came.
    pub(crate) fn answered(mut self) {
        if let Some(mut up) = self.up.take() {
            up.answered(self.sent);
            self.held.give_back(up);
        }
    }

    /// Back to the idle ones, without having been asked.
    pub(crate) fn unasked(mut self) {
        if let Some(up) = self.up.take() {
            self.held.give_back(up);
        }
    }

    /// It is of no more use.
    pub(crate) fn failed(mut self) {
        drop(self.up.take());
        drop(Slot::new(&self.held));
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(up) = self.up.take() else {
            return;
        };
        let slot = Slot::new(&self.held);
        let sent = self.sent;
        // Dropped with the task, when the runtime has ended.
        self.held.runtime.spawn(async move {
            if let Some(up) = up.drain(sent).await {
                slot.fill(up).unasked();
            }
        });
    }
}
