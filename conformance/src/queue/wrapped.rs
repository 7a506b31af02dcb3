//! A store of queues around another one, of which it changes a thing or two.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::{Diagnosis, FenceWhen, Key, KeyState, Owner, StoreError, Token, Ttl};
use lease_queue::{
    Added, Answer, Capabilities, ClaimRef, ClaimRequest, Depth, ItemId, ItemState, Lane, NewItem,
    QueueName, QueueStore, Settle, Settled,
};

/// What a store around another one does of its own, for tests: it counts, notes, delays,
/// fails or names things otherwise. [`Wrapped`] makes a store of it.
///
/// Every method is the [`QueueStore`]'s of that name and defaults to asking
/// [`inner`](Self::inner) the same. That is for tests: a store for production implements
/// `QueueStore` itself, which has no defaults that could hide a method from it.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// use lease_conformance::queue::{Wrapped, Wraps};
/// use lease_core::StoreError;
/// use lease_queue::{Answer, ClaimRequest, MemoryQueues, Queue, QueueName, QueueStore};
///
/// #[derive(Debug, Default)]
/// struct Counting {
///     store: MemoryQueues,
///     claims: AtomicUsize,
/// }
///
/// #[async_trait::async_trait]
/// impl Wraps for Counting {
///     fn inner(&self) -> Arc<dyn QueueStore> {
///         Arc::new(self.store.clone())
///     }
///
///     async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
///         self.claims.fetch_add(1, Ordering::Relaxed);
///         self.inner().claim(queue, request).await
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let counting = Arc::new(Wrapped(Counting::default()));
/// let jobs = Queue::<u32>::builder(counting.clone(), "jobs").build()?;
/// assert!(jobs.try_claim().await?.is_none());
/// assert_eq!(counting.claims.load(Ordering::Relaxed), 1);
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Wraps: fmt::Debug + Send + Sync + 'static {
    /// The store inside, as it is now: another one later on, if that is what is tested.
    fn inner(&self) -> Arc<dyn QueueStore>;

    /// The queue's name inside, which is what every other method is given. Defaults to
    /// the same.
    fn queue(&self, queue: &QueueName) -> QueueName {
        queue.clone()
    }

    /// As [`QueueStore::capabilities`].
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    /// As [`QueueStore::put`].
    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        self.inner().put(queue, items).await
    }

    /// As [`QueueStore::claim`].
    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        self.inner().claim(queue, request).await
    }

    /// As [`QueueStore::settle`].
    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        self.inner().settle(queue, claims).await
    }

    /// As [`QueueStore::abandon`].
    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        self.inner().abandon(queue, key, owner).await
    }

    /// As [`QueueStore::fence`].
    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        self.inner().fence(queue, lane, at_least, when).await
    }

    /// As [`QueueStore::inspect`].
    async fn inspect(&self, queue: &QueueName, key: &Key) -> Result<KeyState, StoreError> {
        self.inner().inspect(queue, key).await
    }

    /// As [`QueueStore::keys`].
    fn keys(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.inner().keys(queue, prefix)
    }

    /// As [`QueueStore::items`].
    fn items(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        self.inner().items(queue, dead)
    }

    /// As [`QueueStore::requeue`].
    async fn requeue(&self, queue: &QueueName, item: ItemId) -> Result<bool, StoreError> {
        self.inner().requeue(queue, item).await
    }

    /// As [`QueueStore::depth`].
    async fn depth(&self, queue: &QueueName) -> Result<Depth, StoreError> {
        self.inner().depth(queue).await
    }

    /// As [`QueueStore::watch`].
    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        self.inner().watch(queue, key).await
    }

    /// As [`QueueStore::diagnose`].
    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.inner().diagnose(ttl).await
    }
}

/// The store that this makes of the one that it wraps; what it [`Wraps`] can be reached
/// as if it was that.
#[derive(Clone, Debug, Default)]
pub struct Wrapped<W>(pub W);

impl<W> std::ops::Deref for Wrapped<W> {
    type Target = W;

    fn deref(&self) -> &W {
        &self.0
    }
}

#[async_trait]
impl<W: Wraps> QueueStore for Wrapped<W> {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        self.0.put(&self.0.queue(queue), items).await
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        self.0.claim(&self.0.queue(queue), request).await
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        self.0.settle(&self.0.queue(queue), claims).await
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        self.0.abandon(&self.0.queue(queue), key, owner).await
    }

    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        let queue = self.0.queue(queue);
        self.0.fence(&queue, lane, at_least, when).await
    }

    async fn inspect(&self, queue: &QueueName, key: &Key) -> Result<KeyState, StoreError> {
        self.0.inspect(&self.0.queue(queue), key).await
    }

    fn keys(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.0.keys(&self.0.queue(queue), prefix)
    }

    fn items(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        self.0.items(&self.0.queue(queue), dead)
    }

    async fn requeue(&self, queue: &QueueName, item: ItemId) -> Result<bool, StoreError> {
        self.0.requeue(&self.0.queue(queue), item).await
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth, StoreError> {
        self.0.depth(&self.0.queue(queue)).await
    }

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        self.0.watch(&self.0.queue(queue), key).await
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.0.diagnose(ttl).await
    }
}
