//! Where the watchers of one runtime and their connection's task meet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lease_core::StoreError;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How long a connection that nobody needs is kept for the next watcher.
const LINGER: Duration = Duration::from_secs(10);

/// What the watchers of a key see.
#[derive(Clone, Debug, Default)]
struct Beat {
    /// How many hints there were.
    hints: u64,
    /// Whether somebody who frees the key would tell.
    stands: bool,
    /// How many attempts to listen have failed.
    failures: u64,
    /// Why the last of them did.
    error: Option<StoreError>,
}

/// What the server knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Nothing.
    None,
    /// Its row was locked when it was to be marked.
    Late,
    /// That somebody waits for it.
    Set,
}

struct Watched {
    watchers: usize,
    mark: Mark,
    /// It was marked on an earlier connection: notifications may have been
    /// missed.
    lost: bool,
    beat: watch::Sender<Beat>,
}

#[derive(Default)]
struct State {
    keys: HashMap<String, Watched>,
    /// When the last watcher left.
    idle_since: Option<Instant>,
    /// The store is gone: nobody will come.
    closed: bool,
}

pub(super) struct Hub {
    state: Mutex<State>,
    /// For the task, and nobody else: something may be to be done.
    changed: Notify,
}

impl Hub {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the state is being changed.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A place for one watcher.
    pub(super) fn seat(self: &Arc<Self>, key: String) -> Seat {
        let beats = {
            let mut state = self.state();
            state.idle_since = None;
            let watched = state.keys.entry(key.clone()).or_insert_with(|| Watched {
                watchers: 0,
                mark: Mark::None,
                lost: false,
                beat: watch::Sender::default(),
            });
            watched.watchers += 1;
            watched.beat.subscribe()
        };
        self.changed.notify_one();
        let (hints, failures) = {
            let beat = beats.borrow();
            (beat.hints, beat.failures)
        };
        Seat {
            hub: Arc::clone(self),
            key,
            beats,
            hints,
            failures,
        }
    }

    fn leave(&self, key: &str) {
        let mut state = self.state();
        let Some(watched) = state.keys.get_mut(key) else {
            // The connection ended for good.
            return;
        };
        watched.watchers -= 1;
        if watched.watchers == 0 {
            state.keys.remove(key);
        }
        if state.keys.is_empty() {
            state.idle_since = Some(Instant::now());
            drop(state);
            self.changed.notify_one();
        }
    }

    /// Nobody will take a seat any more.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_one();
    }

    /// Ends all streams.
    pub(super) fn end(&self) {
        let keys = std::mem::take(&mut self.state().keys);
        drop(keys);
    }

    pub(super) fn is_watched(&self) -> bool {
        self.idle_until().is_none()
    }

    /// Until when a connection without watchers is kept; `None` while somebody
    /// watches.
    pub(super) fn idle_until(&self) -> Option<Instant> {
        let state = self.state();
        let since = state.idle_since?;
        Some(match state.closed {
            true => since,
            false => since + LINGER,
        })
    }

    /// Returns when something may be to be done; for the task alone.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// A notification came.
    pub(super) fn hint(&self, key: &str) {
        if let Some(watched) = self.state().keys.get(key) {
            watched.beat.send_modify(|beat| beat.hints += 1);
        }
    }

    /// Keys to be marked: all of them, or only those that are not.
    pub(super) fn to_mark(&self, all: bool) -> Vec<String> {
        let state = self.state();
        let keys = state.keys.iter();
        keys.filter(|(_, watched)| all || watched.mark != Mark::Set)
            .map(|(key, _)| key.clone())
            .collect()
    }

    /// Whether a key could not be marked and is to be tried again.
    pub(super) fn any_late(&self) -> bool {
        let state = self.state();
        state
            .keys
            .values()
            .any(|watched| watched.mark == Mark::Late)
    }

    /// These were to be marked, and all but the `late` ones are.
    pub(super) fn marked(&self, keys: &[String], late: &[bool]) {
        let mut state = self.state();
        for (key, late) in keys.iter().zip(late) {
            let Some(watched) = state.keys.get_mut(key) else {
                continue;
            };
            // Who frees it before it is marked tells nobody: so whoever waits
            // looks once more when it is.
            let missed = watched.lost || (watched.mark == Mark::Late && !late);
            if *late {
                // Its earlier mark is good for a while.
                if watched.mark == Mark::None {
                    watched.mark = Mark::Late;
                }
            } else {
                watched.mark = Mark::Set;
                watched.lost = false;
            }
            watched.beat.send_modify(|beat| {
                beat.stands = true;
                beat.hints += u64::from(missed);
            });
        }
    }

    /// The connection is gone or could not be opened; `error` is for those who
    /// wait for a subscription.
    pub(super) fn disconnected(&self, error: Option<&StoreError>) {
        for watched in self.state().keys.values_mut() {
            watched.lost |= watched.mark != Mark::None;
            watched.mark = Mark::None;
            watched.beat.send_modify(|beat| {
                beat.stands = false;
                if let Some(error) = error {
                    beat.failures += 1;
                    beat.error = Some(error.clone());
                }
            });
        }
    }
}

/// One watcher of one key, until dropped.
pub(super) struct Seat {
    hub: Arc<Hub>,
    key: String,
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
        self.hub.leave(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn key(text: &str) -> String {
        text.to_owned()
    }

    fn hub() -> Arc<Hub> {
        Arc::new(Hub::new())
    }

    #[test]
    fn a_watcher_hears_of_its_key_alone_and_once() {
        let hub = hub();
        let (mut a, mut b) = (hub.seat(key("a")), hub.seat(key("b")));
        assert!(a.subscribed().now_or_never().is_none());
        hub.marked(&[key("a"), key("b")], &[false, false]);
        assert!(a.subscribed().now_or_never().unwrap().is_ok());
        hub.hint("a");
        hub.hint("a");
        hub.hint("nobody's");
        assert_eq!(a.hint().now_or_never(), Some(Some(())));
        assert_eq!(a.hint().now_or_never(), None);
        assert_eq!(b.hint().now_or_never(), None);
        drop((a, b));
        assert!(!hub.is_watched() && hub.to_mark(true).is_empty());
    }

    #[test]
    fn who_could_not_be_marked_at_once_is_woken_when_it_is() {
        let hub = hub();
        let mut a = hub.seat(key("a"));
        hub.marked(&[key("a")], &[true]);
        assert!(a.subscribed().now_or_never().unwrap().is_ok());
        assert!(hub.any_late());
        assert_eq!(a.hint().now_or_never(), None);
        hub.marked(&[key("a")], &[false]);
        assert!(!hub.any_late());
        assert_eq!(a.hint().now_or_never(), Some(Some(())));
        // An earlier mark is good for a while.
        hub.marked(&[key("a")], &[true]);
        assert!(!hub.any_late());
    }

    #[test]
    fn a_lost_connection_is_made_up_for() {
        let hub = hub();
        let mut old = hub.seat(key("old"));
        hub.marked(&[key("old")], &[false]);
        hub.disconnected(Some(&StoreError::unavailable("gone")));
        let mut new = hub.seat(key("new"));
        assert!(old.subscribed().now_or_never().unwrap().is_err());
        assert!(new.subscribed().now_or_never().is_none());
        let both = hub.to_mark(false);
        assert_eq!(both.len(), 2);
        hub.marked(&both, &[false, false]);
        // Only who was subscribed before can have missed something.
        assert_eq!(old.hint().now_or_never(), Some(Some(())));
        assert_eq!(new.hint().now_or_never(), None);
        hub.end();
        assert_eq!(new.hint().now_or_never(), Some(None));
    }
}
