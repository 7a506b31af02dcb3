//! Ours, over any store of queues: the store itself, the handle, and keyed leases.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use lease_conformance::bench::{Drained, by_tasks};
use lease_core::{Key, Label, Owner, TokenRule, Ttl};
use lease_queue::{
    Answer, ClaimRequest, ItemId, MAX_BATCH, NewItem, Queue, QueueName, QueueStore, Raw, Settle,
    Settled, What,
};

pub(crate) const TTL: Duration = Duration::from_secs(30);
/// What an item holds, of ours and of others.
pub(crate) const BODY: &[u8] = &[b'x'; 100];

pub(crate) fn request(what: What) -> ClaimRequest {
    ClaimRequest {
        owner: Owner::random().unwrap(),
        ttl: Ttl::new(TTL).unwrap(),
        label: Label::EMPTY,
        what,
    }
}

pub(crate) fn item() -> NewItem {
    NewItem {
        id: ItemId::random().unwrap(),
        body: Bytes::from_static(BODY),
        group: None,
        dedup: None,
        delay: Duration::ZERO,
    }
}

async fn put(store: &dyn QueueStore, queue: &QueueName, count: usize) {
    let items: Vec<_> = (0..count).map(|_| item()).collect();
    for batch in items.chunks(MAX_BATCH) {
        store.put(queue, batch).await.unwrap();
    }
}

/// One claim and its completion, whatever is claimed.
async fn pair(store: &dyn QueueStore, queue: &QueueName, what: What, end: Settle) {
    let Answer::Claimed { items, .. } = store.claim(queue, &request(what)).await.unwrap() else {
        panic!("nothing to claim");
    };
    let ends: Vec<_> = items
        .into_iter()
        .map(|it| (it.claim, end.clone()))
        .collect();
    for settled in store.settle(queue, &ends).await {
        assert_eq!(settled.unwrap(), Settled::Done);
    }
}

/// The store's own operations.
pub(crate) struct Store {
    name: &'static str,
    store: Arc<dyn QueueStore>,
    queue: QueueName,
}

impl Store {
    pub(crate) fn new(name: &'static str, store: Arc<dyn QueueStore>) -> Self {
        let queue = QueueName::new("store").unwrap();
        Self { name, store, queue }
    }
}

#[async_trait]
impl Drained for Store {
    fn name(&self) -> String {
        format!("lease-queue on {}, the store", self.name)
    }

    async fn fill(&self, items: usize) {
        put(&*self.store, &self.queue, items).await;
    }

    async fn drain(&self, tasks: usize, items: usize) -> Vec<f64> {
        let next = || {
            pair(
                &*self.store,
                &self.queue,
                What::Next { max: 1 },
                Settle::Complete,
            )
        };
        by_tasks(tasks, items, next).await
    }
}

/// The handle, as an application uses it.
pub(crate) struct Handle {
    name: &'static str,
    queue: Queue<Vec<u8>, Raw>,
}

impl Handle {
    pub(crate) fn new(name: &'static str, store: Arc<dyn QueueStore>) -> Self {
        let queue = Queue::raw_builder(store, "handle")
            .ttl(TTL)
            .build()
            .unwrap();
        Self { name, queue }
    }
}

#[async_trait]
impl Drained for Handle {
    fn name(&self) -> String {
        format!("lease-queue on {}, through Queue", self.name)
    }

    async fn fill(&self, items: usize) {
        put(&**self.queue.store(), self.queue.name(), items).await;
    }

    async fn drain(&self, tasks: usize, items: usize) -> Vec<f64> {
        let next = || async {
            let claim = self.queue.claim().await.unwrap();
            claim.complete().await.unwrap();
        };
        by_tasks(tasks, items, next).await
    }
}

/// A worker of the handle's with an empty handler.
pub(crate) struct Worker(Handle);

impl Worker {
    pub(crate) fn new(name: &'static str, store: Arc<dyn QueueStore>) -> Self {
        let queue = Queue::raw_builder(store, "worker")
            .ttl(TTL)
            .build()
            .unwrap();
        Self(Handle { name, queue })
    }
}

#[async_trait]
impl Drained for Worker {
    fn name(&self) -> String {
        format!("lease-queue on {}, Queue::worker", self.0.name)
    }

    async fn fill(&self, items: usize) {
        self.0.fill(items).await;
    }

    async fn drain(&self, tasks: usize, items: usize) -> Vec<f64> {
        let stop = tokio_util::sync::CancellationToken::new();
        let done = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let worker = self.0.queue.worker(tasks).stop_with(stop.clone());
        let report = worker.run(move |_: Vec<u8>, _| {
            if done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1 == items {
                stop.cancel();
            }
            async { Ok::<(), String>(()) }
        });
        let report = report.await.unwrap();
        assert_eq!(report.completed, items as u64);
        Vec::new()
    }
}

/// Keys: acquired and released.
pub(crate) struct Keyed {
    name: &'static str,
    store: Arc<dyn QueueStore>,
    queue: QueueName,
}

impl Keyed {
    pub(crate) fn new(name: &'static str, store: Arc<dyn QueueStore>) -> Self {
        let queue = QueueName::new("keyed").unwrap();
        Self { name, store, queue }
    }
}

#[async_trait]
impl Drained for Keyed {
    fn name(&self) -> String {
        format!("lease-queue on {}, a key of each task", self.name)
    }

    async fn fill(&self, _items: usize) {}

    async fn drain(&self, tasks: usize, items: usize) -> Vec<f64> {
        let free = std::sync::Mutex::new((0..tasks).collect::<Vec<_>>());
        let next = || async {
            let task = free.lock().unwrap().pop().unwrap();
            let key = Key::new(format!("key/{task}")).unwrap();
            let rule = TokenRule::NEXT;
            let give_back = Settle::Retry {
                delay: Duration::ZERO,
                counts: false,
                error: None,
            };
            pair(
                &*self.store,
                &self.queue,
                What::Key {
                    key,
                    rule,
                    waits: None,
                },
                give_back,
            )
            .await;
            free.lock().unwrap().push(task);
        };
        by_tasks(tasks, items, next).await
    }
}
