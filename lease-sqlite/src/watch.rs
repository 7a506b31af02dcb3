//! Who waits for which key.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

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

    pub(crate) fn subscribe(&self, key: &Key) -> BoxStream<'static, ()> {
        let receiver = self
            .lock()
            .entry(key.clone())
            .or_insert_with(|| watch::channel(()).0)
            .subscribe();
        stream::unfold(receiver, |mut receiver| async move {
            receiver.changed().await.ok().map(|()| ((), receiver))
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

    /// The keys that somebody still listens for; the others are forgotten.
    pub(crate) fn watched(&self) -> Vec<Key> {
        let mut by_key = self.lock();
        by_key.retain(|_, sender| !sender.is_closed());
        by_key.keys().cloned().collect()
    }

    /// Whether anybody listens.
    pub(crate) fn any(&self) -> bool {
        let mut by_key = self.lock();
        by_key.retain(|_, sender| !sender.is_closed());
        !by_key.is_empty()
    }

    /// Ends every stream.
    pub(crate) fn close(&self) {
        self.lock().clear();
    }
}
