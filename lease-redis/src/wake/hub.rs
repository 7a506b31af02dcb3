//! Where the watchers of one runtime and their connection's task meet.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lease_core::StoreError;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::channels::{Beat, Channels};

pub(super) struct Hub {
    state: Mutex<State>,
    /// For the task, and nobody else: something may be to be done.
    changed: Notify,
    linger: Duration,
}

struct State {
    channels: Channels,
    /// When the last watcher left.
    idle_since: Instant,
    /// The store is gone: nobody will come.
    closed: bool,
}

impl Hub {
    pub(super) fn new(linger: Duration) -> Self {
        Self {
            state: Mutex::new(State {
                channels: Channels::default(),
                idle_since: Instant::now(),
                closed: false,
            }),
            changed: Notify::new(),
            linger,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the state is being changed.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Works on the channels; what it does must be quick.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Channels) -> T) -> T {
        work(&mut self.state().channels)
    }

    /// A place for one watcher.
    pub(super) fn seat(self: &Arc<Self>, channel: String) -> Seat {
        let name = Arc::from(channel);
        let beats = self.with(|channels| channels.join(&name));
        self.changed.notify_one();
        let Beat {
            hints, failures, ..
        } = *beats.borrow();
        Seat {
            hub: Arc::clone(self),
            name,
            beats,
            hints,
            failures,
        }
    }

    fn leave(&self, name: &str) {
        let mut state = self.state();
        state.channels.leave(name);
        if state.channels.watchers() == 0 {
            state.idle_since = Instant::now();
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Nobody will take a seat any more.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_one();
    }

    /// Ends all streams.
    pub(super) fn end(&self) {
        self.with(Channels::end);
    }

    pub(super) fn is_watched(&self) -> bool {
        self.idle_until().is_none()
    }

    /// Until when a connection without watchers is kept; `None` while somebody
    /// watches.
    pub(super) fn idle_until(&self) -> Option<Instant> {
        let state = self.state();
        let idle = state.channels.watchers() == 0;
        idle.then(|| match state.closed {
            true => state.idle_since,
            false => state.idle_since + self.linger,
        })
    }

    /// Returns when something may be to be done; for the task alone.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// One watcher of one channel, until dropped.
pub(super) struct Seat {
    hub: Arc<Hub>,
    name: Arc<str>,
    beats: watch::Receiver<Beat>,
    /// How many hints it has had.
    hints: u64,
    /// How many attempts had failed before it came.
    failures: u64,
}

impl Seat {
    /// Waits until the subscription stands or an attempt has failed.
    pub(super) async fn subscribed(&mut self) -> Result<(), StoreError> {
        let before = self.failures;
        let beat = self
            .beats
            .wait_for(|beat| beat.stands || beat.failures != before)
            .await
            .map_err(|_| {
                StoreError::unavailable(
                    "wake-ups ended with the tokio runtime that they were asked for in; watch \
                     again in one that runs",
                )
            })?;
        match &beat.error {
            Some(error) if !beat.stands => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// The next hint; `None` when there will be none any more.
    pub(super) async fn hint(&mut self) -> Option<()> {
        let before = self.hints;
        let news = self.beats.wait_for(|beat| beat.hints != before).await;
        self.hints = news.ok()?.hints;
        Some(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.hub.leave(&self.name);
    }
}
