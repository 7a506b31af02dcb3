//! Puts the items, while they are worked on and servers die.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lease_core::Key;
use lease_queue::{Added, ItemId, NewItem, QueueName, QueueStore};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Plan, passing};
use crate::record::Work;

/// So many items of each group are put before the first ones are done.
const AHEAD: usize = 15;

/// The one who puts.
pub(super) struct Putting {
    done: watch::Sender<usize>,
    task: JoinHandle<()>,
}

impl Putting {
    pub(super) fn start(plan: &Plan, store: &Arc<dyn QueueStore>, queue: &QueueName) -> Self {
        let (done, progress) = watch::channel(0);
        let (plan, store, queue) = (plan.clone(), Arc::clone(store), queue.clone());
        let task = tokio::spawn(async move { put(&plan, &*store, &queue, progress).await });
        Self { done, task }
    }

    /// So many items are done.
    pub(super) fn done(&self, items: usize) {
        self.done
            .send_if_modified(|done| std::mem::replace(done, items) != items);
    }

    pub(super) fn is_over(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for Putting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Puts one more of each group, whenever so many are done that there is a need.
async fn put(
    plan: &Plan,
    store: &dyn QueueStore,
    queue: &QueueName,
    mut progress: watch::Receiver<usize>,
) {
    for number in 0..plan.each {
        let enough = number as usize;
        let needed = |done: &usize| enough < done / plan.groups + AHEAD;
        progress.wait_for(needed).await.unwrap();
        let items: Vec<_> = (0..plan.groups).map(|group| item(group, number)).collect();
        let added = loop {
            // Again, when nobody knows what came of it.
            if let Some(added) = passing(store.put(queue, &items).await) {
                break added;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        assert!(
            added.iter().all(|added| *added == Added::Added),
            "{added:?}"
        );
    }
}

fn item(group: usize, number: u32) -> NewItem {
    let work = Work { group, number };
    NewItem {
        id: ItemId::random().unwrap(),
        body: Bytes::from(serde_json::to_vec(&work).unwrap()),
        group: Some(Key::new(group.to_string()).unwrap()),
        dedup: None,
        delay: Duration::ZERO,
    }
}
