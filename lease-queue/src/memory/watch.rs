//! Those who wait: for anything in a queue, or for one key.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::Key;
use tokio::sync::Notify;

use crate::memory::MemoryQueues;
use crate::name::QueueName;
use crate::table::Hints;

type What = (QueueName, Option<Key>);

/// In the order in which they came, and woken in that order.
#[derive(Debug, Default)]
pub(super) struct Watchers(HashMap<What, Vec<Arc<Notify>>>);

impl Watchers {
    pub(super) fn wake(&self, queue: &QueueName, hints: &Hints) {
        if self.0.is_empty() {
            return;
        }
        let keys = hints.keys.iter().map(|key| Some(key.clone()));
        for what in hints.queue.then_some(None).into_iter().chain(keys) {
            let watchers = self.0.get(&(queue.clone(), what));
            watchers.into_iter().flatten().for_each(|w| w.notify_one());
        }
    }
}

/// One subscription; dropping it ends it.
struct Watcher {
    store: MemoryQueues,
    what: What,
    hint: Arc<Notify>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let all = &mut self.store.state().watchers.0;
        if let Some(watchers) = all.get_mut(&self.what) {
            watchers.retain(|other| !Arc::ptr_eq(other, &self.hint));
            if watchers.is_empty() {
                all.remove(&self.what);
            }
        }
    }
}

pub(super) fn subscribe(
    store: &MemoryQueues,
    queue: &QueueName,
    key: Option<&Key>,
) -> BoxStream<'static, ()> {
    let watcher = Watcher {
        store: store.clone(),
        what: (queue.clone(), key.cloned()),
        hint: Arc::new(Notify::new()),
    };
    let mut state = store.state();
    let watchers = state.watchers.0.entry(watcher.what.clone()).or_default();
    watchers.push(Arc::clone(&watcher.hint));
    drop(state);
    stream::unfold(watcher, |watcher| async move {
        watcher.hint.notified().await;
        Some(((), watcher))
    })
    .boxed()
}
