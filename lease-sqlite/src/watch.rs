//! Who waits for which key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::Key;
use tokio::sync::watch;

/// The watched keys of one client.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    by_key: Mutex<HashMap<Key, watch::Sender<()>>>,
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, watch::Sender<()>>> {
        // Nothing panics while the map is being changed.
        self.by_key.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn subscribe(self: &Arc<Self>, key: &Key) -> BoxStream<'static, ()> {
        let hints = self
            .lock()
            .entry(key.clone())
            .or_insert_with(|| watch::channel(()).0)
            .subscribe();
        let leave = Leave {
            watchers: Arc::clone(self),
            key: key.clone(),
        };
        stream::unfold((hints, leave), |(mut hints, leave)| async move {
            hints.changed().await.ok().map(|()| ((), (hints, leave)))
        })
        .boxed()
    }

    /// Hints that `key` may be free.
    pub(crate) fn wake(&self, key: &Key) {
        if let Some(sender) = self.lock().get(key) {
            // Nobody listening is no failure.
            let _ = sender.send(());
        }
    }

    /// The keys that somebody listens for.
    pub(crate) fn watched(&self) -> Vec<Key> {
        self.lock().keys().cloned().collect()
    }

    /// Whether anybody listens.
    pub(crate) fn any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Ends every stream.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }
}

/// Dropped after the receiver of one subscription: the last one forgets the
/// key.
struct Leave {
    watchers: Arc<Watchers>,
    key: Key,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut by_key = self.watchers.lock();
        if by_key.get(&self.key).is_some_and(watch::Sender::is_closed) {
            by_key.remove(&self.key);
        }
    }
}
