//! The channels of one connection: what watchers want, and what the server
//! has confirmed. Sends nothing itself.
//!
//! Only the connection's task moves a channel from one [`Standing`] to the
//! next; watchers come and go at any time and put their channel in the queue
//! when it needs a look.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use lease_core::StoreError;
use tokio::sync::watch;

/// What the watchers of a channel see.
#[derive(Clone, Debug, Default)]
pub(super) struct Beat {
    /// How many hints there were.
    pub(super) hints: u64,
    /// Whether the server has confirmed the subscription.
    pub(super) stands: bool,
    /// How many attempts to subscribe have failed.
    pub(super) failures: u64,
    /// Why the last of them did.
    pub(super) error: Option<StoreError>,
}

/// What the server knows of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Absent,
    Subscribing,
    Subscribed,
    Unsubscribing,
}

struct Channel {
    watchers: usize,
    standing: Standing,
    /// It stood on an earlier connection: messages may have been missed.
    lost: bool,
    queued: bool,
    beat: watch::Sender<Beat>,
}

/// What to tell the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) subscribe: Vec<Arc<str>>,
    pub(super) unsubscribe: Vec<Arc<str>>,
}

#[derive(Default)]
pub(super) struct Channels {
    by_name: HashMap<Arc<str>, Channel>,
    /// Channels that may need a change; filled only while connected.
    queue: VecDeque<Arc<str>>,
    connected: bool,
    watchers: usize,
}

impl Channels {
    pub(super) fn watchers(&self) -> usize {
        self.watchers
    }

    /// One more watcher.
    pub(super) fn join(&mut self, name: &Arc<str>) -> watch::Receiver<Beat> {
        self.watchers += 1;
        let channel = self
            .by_name
            .entry(Arc::clone(name))
            .or_insert_with(|| Channel {
                watchers: 0,
                standing: Standing::Absent,
                lost: false,
                queued: false,
                beat: watch::Sender::default(),
            });
        channel.watchers += 1;
        let beats = channel.beat.subscribe();
        self.look_at(name);
        beats
    }

    /// One watcher less.
    pub(super) fn leave(&mut self, name: &str) {
        let Some((name, channel)) = self.by_name.get_key_value(name) else {
            // The connection ended for good.
            return;
        };
        let name = Arc::clone(name);
        let standing = channel.standing;
        self.watchers -= 1;
        if let Some(channel) = self.by_name.get_mut(&name) {
            channel.watchers -= 1;
            if channel.watchers > 0 {
                return;
            }
        }
        match standing {
            // While the server is away, nobody would ever look at it again.
            Standing::Absent => drop(self.by_name.remove(&name)),
            _ => self.look_at(&name),
        }
    }

    fn look_at(&mut self, name: &Arc<str>) {
        let Some(channel) = self.by_name.get_mut(name) else {
            return;
        };
        if self.connected && !channel.queued {
            channel.queued = true;
            self.queue.push_back(Arc::clone(name));
        }
    }

    /// A message came.
    pub(super) fn hint(&self, name: &str) {
        if let Some(channel) = self.by_name.get(name) {
            channel.beat.send_modify(|beat| beat.hints += 1);
        }
    }

    /// A new connection, without any subscription.
    pub(super) fn connected(&mut self) {
        self.connected = true;
        let names: Vec<_> = self.by_name.keys().map(Arc::clone).collect();
        for name in names {
            self.look_at(&name);
        }
    }

    /// The connection is gone or could not be opened; `error` is for those who
    /// wait for a subscription.
    pub(super) fn disconnected(&mut self, error: Option<&StoreError>) {
        self.connected = false;
        self.queue.clear();
        self.by_name.retain(|_, channel| channel.watchers > 0);
        for channel in self.by_name.values_mut() {
            channel.lost |= channel.standing == Standing::Subscribed;
            channel.standing = Standing::Absent;
            channel.queued = false;
            channel.beat.send_modify(|beat| {
                beat.stands = false;
                if let Some(error) = error {
                    beat.failures += 1;
                    beat.error = Some(error.clone());
                }
            });
        }
    }

    /// What to tell the server next, of at most `most` channels. The caller
    /// reports what became of it: [`refused`](Self::refused), then
    /// [`subscribed`](Self::subscribed) and [`unsubscribed`](Self::unsubscribed), or
    /// [`disconnected`](Self::disconnected).
    pub(super) fn next_change(&mut self, most: usize) -> Option<Change> {
        let mut change = Change::default();
        while change.subscribe.len() + change.unsubscribe.len() < most {
            let Some(name) = self.queue.pop_front() else {
                break;
            };
            let Some(channel) = self.by_name.get_mut(&name) else {
                continue;
            };
            channel.queued = false;
            match (channel.watchers, channel.standing) {
                (0, Standing::Absent) => drop(self.by_name.remove(&name)),
                (0, Standing::Subscribed) => {
                    channel.standing = Standing::Unsubscribing;
                    // Whoever joins now waits for the next subscription.
                    channel.beat.send_modify(|beat| beat.stands = false);
                    change.unsubscribe.push(name);
                }
                (1.., Standing::Absent) => {
                    channel.standing = Standing::Subscribing;
                    change.subscribe.push(name);
                }
                // As wanted, or looked at again when the server has answered.
                _ => {}
            }
        }
        (change != Change::default()).then_some(change)
    }

    /// The server refused these, and takes others; they are
    /// [asked for again](Self::ask_again) later.
    pub(super) fn refused(&mut self, refused: &[(Arc<str>, StoreError)]) {
        for (name, error) in refused {
            let Some(channel) = self.by_name.get_mut(name) else {
                continue;
            };
            if channel.watchers == 0 {
                self.by_name.remove(name);
                continue;
            }
            channel.standing = Standing::Absent;
            channel.beat.send_modify(|beat| {
                beat.failures += 1;
                beat.error = Some(error.clone());
            });
        }
    }

    /// Puts what was refused into the queue again.
    pub(super) fn ask_again(&mut self) {
        let absent = self.by_name.iter();
        let absent = absent.filter(|(_, channel)| channel.standing == Standing::Absent);
        let names: Vec<_> = absent.map(|(name, _)| Arc::clone(name)).collect();
        for name in names {
            self.look_at(&name);
        }
    }

    /// The server confirmed these, but for what it refused.
    pub(super) fn subscribed(&mut self, names: &[Arc<str>]) {
        for name in names {
            let Some(channel) = self.by_name.get_mut(name) else {
                continue;
            };
            if channel.standing != Standing::Subscribing {
                continue;
            }
            channel.standing = Standing::Subscribed;
            let lost = std::mem::take(&mut channel.lost);
            channel.beat.send_modify(|beat| {
                beat.stands = true;
                beat.hints += u64::from(lost);
            });
            self.look_at(name);
        }
    }

    /// The server confirmed that these are gone.
    pub(super) fn unsubscribed(&mut self, names: &[Arc<str>]) {
        for name in names {
            if let Some(channel) = self.by_name.get_mut(name) {
                channel.standing = Standing::Absent;
                self.look_at(name);
            }
        }
    }

    /// Ends every stream.
    pub(super) fn end(&mut self) {
        *self = Self::default();
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty() && self.queue.is_empty() && self.watchers == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Arc<str> {
        Arc::from(text)
    }

    fn change(subscribe: &[&str], unsubscribe: &[&str]) -> Option<Change> {
        let all = |names: &[&str]| names.iter().map(|n| name(n)).collect();
        Some(Change {
            subscribe: all(subscribe),
            unsubscribe: all(unsubscribe),
        })
    }

    fn connected() -> Channels {
        let mut channels = Channels::default();
        channels.connected();
        channels
    }

    #[test]
    fn many_watchers_are_one_subscription() {
        let mut channels = connected();
        let a = name("a");
        let beats: Vec<_> = (0..3).map(|_| channels.join(&a)).collect();
        assert_eq!(channels.next_change(9), change(&["a"], &[]));
        assert_eq!(channels.next_change(9), None);
        channels.subscribed(&[name("a")]);
        assert!(beats.iter().all(|beat| beat.borrow().stands));
        channels.leave("a");
        channels.leave("a");
        assert_eq!(channels.next_change(9), None);
        channels.leave("a");
        assert_eq!(channels.next_change(9), change(&[], &["a"]));
        channels.unsubscribed(&[name("a")]);
        assert_eq!(channels.next_change(9), None);
        assert!(channels.is_empty());
    }

    #[test]
    fn who_joins_while_the_last_one_leaves_is_subscribed_again() {
        let mut channels = connected();
        let a = name("a");
        channels.join(&a);
        channels.next_change(9);
        channels.subscribed(&[name("a")]);
        channels.leave("a");
        // Before the server is told: it stands all the time.
        let beat = channels.join(&a);
        assert_eq!(channels.next_change(9), None);
        assert!(beat.borrow().stands);
        channels.leave("a");
        // While it is being told: not until the next subscription.
        assert_eq!(channels.next_change(9), change(&[], &["a"]));
        let beat = channels.join(&a);
        assert!(!beat.borrow().stands);
        assert_eq!(channels.next_change(9), None);
        channels.unsubscribed(&[name("a")]);
        assert_eq!(channels.next_change(9), change(&["a"], &[]));
        channels.subscribed(&[name("a")]);
        assert!(beat.borrow().stands);
    }

    #[test]
    fn who_leaves_while_being_subscribed_is_unsubscribed() {
        let mut channels = connected();
        channels.join(&name("a"));
        assert_eq!(channels.next_change(9), change(&["a"], &[]));
        channels.leave("a");
        assert_eq!(channels.next_change(9), None);
        channels.subscribed(&[name("a")]);
        assert_eq!(channels.next_change(9), change(&[], &["a"]));
    }

    #[test]
    fn a_lost_connection_is_made_up_for() {
        let mut channels = connected();
        let old = channels.join(&name("old"));
        channels.next_change(9);
        channels.subscribed(&[name("old")]);
        channels.disconnected(Some(&StoreError::unavailable("gone")));
        let new = channels.join(&name("new"));
        assert!(!old.borrow().stands);
        assert_eq!(channels.next_change(9), None);
        // Still away.
        channels.disconnected(Some(&StoreError::unavailable("gone")));
        assert_eq!((old.borrow().failures, new.borrow().failures), (2, 1));
        assert!(new.borrow().error.is_some());
        assert_eq!((old.borrow().hints, new.borrow().hints), (0, 0));
        channels.connected();
        let change = channels.next_change(9).unwrap();
        assert_eq!(change.subscribe.len(), 2);
        channels.subscribed(&change.subscribe);
        // Only who was subscribed before can have missed something.
        assert_eq!((old.borrow().hints, new.borrow().hints), (1, 0));
        assert!(new.borrow().stands);
    }

    #[test]
    fn what_is_refused_is_asked_for_again_and_harms_no_other() {
        let mut channels = connected();
        let (a, b) = (channels.join(&name("a")), channels.join(&name("b")));
        channels.join(&name("c"));
        assert_eq!(channels.next_change(9), change(&["a", "b", "c"], &[]));
        channels.leave("c");
        let why = StoreError::unavailable("not served");
        let refused = ["a", "c"].map(|refused| (name(refused), why.clone()));
        channels.refused(&refused);
        channels.subscribed(&[name("a"), name("b"), name("c")]);
        assert!(!a.borrow().stands && b.borrow().stands);
        assert_eq!((a.borrow().failures, b.borrow().failures), (1, 0));
        assert_eq!(channels.next_change(9), None);
        channels.ask_again();
        assert_eq!(channels.next_change(9), change(&["a"], &[]));
        channels.subscribed(&[name("a")]);
        assert!(a.borrow().stands);
        channels.leave("a");
        channels.leave("b");
        assert_eq!(channels.next_change(9), change(&[], &["a", "b"]));
    }

    #[test]
    fn nothing_piles_up_while_the_server_is_away() {
        let mut channels = Channels::default();
        for n in 0..1000 {
            let name = name(&n.to_string());
            channels.join(&name);
            channels.leave(&name);
        }
        assert!(channels.is_empty());
    }

    #[test]
    fn a_change_has_a_limit_and_the_rest_follows() {
        let mut channels = connected();
        for n in 0..5 {
            channels.join(&name(&n.to_string()));
        }
        let sizes: Vec<_> = std::iter::from_fn(|| channels.next_change(2))
            .map(|change| change.subscribe.len())
            .collect();
        assert_eq!(sizes, [2, 2, 1]);
    }
}
