//! A queue for people: put, claim, work.

mod backoff;
mod builder;
mod claim;
mod claiming;
mod leases;
mod put;
mod settling;
mod told;
mod waiting;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::BoxStream;
use lease_core::{Clock, Key, Label, Leases, ShutdownReport, StoreError, Subscription, Ttl};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use backoff::Backoff;
pub use builder::QueueBuilder;
pub use claim::Claim;
pub(crate) use claim::Hold;
pub use put::Put;
pub(crate) use settling::Unsettled;

use crate::codec::{Json, Raw};
use crate::error::QueueError;
use crate::item::{ItemId, ItemState};
use crate::measure;
use crate::name::QueueName;
use crate::store::{Capabilities, Depth, QueueStore};
use crate::worker::Worker;

use leases::ClaimLeases;

/// What all clones of a queue share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn QueueStore>,
    pub(crate) name: QueueName,
    pub(crate) can: Capabilities,
    /// What an acquisition of any of its items is called.
    key: Key,
    leases: Leases,
    claims: Arc<ClaimLeases>,
    pub(crate) clock: Arc<dyn Clock>,
    ttl: Ttl,
    label: Label,
    max_attempts: Option<u32>,
    backoff: Backoff,
    max_hold: Option<Duration>,
    progress_within: Option<Duration>,
    told: told::Told,
    /// Those who wait, first come first served: only the first asks the store.
    turn: tokio::sync::Mutex<Subscription>,
    closing: CancellationToken,
    /// How many requests for items are under way.
    asking: watch::Sender<usize>,
}

/// A client of one queue, with payloads of `T` as `C` writes them.
///
/// Cheap to clone; clones share the renewal of their claims and the local line of those
/// who wait. Must be used within a tokio runtime with time enabled.
///
/// See the crate's page for an example.
pub struct Queue<T, C = Json> {
    inner: Arc<Inner>,
    payload: PhantomData<fn(T) -> (T, C)>,
}

impl<T> Queue<T> {
    /// A queue of a store with payloads as JSON. Nothing is sent; a name that no queue
    /// may have is reported by [`build`](QueueBuilder::build).
    pub fn builder(store: Arc<dyn QueueStore>, name: impl AsRef<str>) -> QueueBuilder<T, Json> {
        QueueBuilder::new(store, name.as_ref())
    }
}

impl<T> Queue<T, Raw> {
    /// As [`builder`](Queue::builder), with payloads as the bytes that they are.
    pub fn raw_builder(store: Arc<dyn QueueStore>, name: impl AsRef<str>) -> QueueBuilder<T, Raw> {
        QueueBuilder::new(store, name.as_ref())
    }
}

impl<T, C> Queue<T, C> {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self {
            inner,
            payload: PhantomData,
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The queue's name.
    #[must_use]
    pub fn name(&self) -> &QueueName {
        &self.inner.name
    }

    /// What its store can do.
    #[must_use]
    pub fn capabilities(&self) -> &Capabilities {
        &self.inner.can
    }

    /// The store itself, for operations that need no payload.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn QueueStore> {
        &self.inner.store
    }

    /// Workers that take up to `at_once` items at a time (at least one).
    pub fn worker(&self, at_once: usize) -> Worker<T, C> {
        Worker::new(self.clone(), at_once)
    }

    /// How full the queue is. With the feature `metrics` the gauges `leases_queue_depth` and
    /// `leases_queue_oldest_seconds` are set to it: call it now and then.
    ///
    /// # Errors
    /// [`QueueError::Store`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn depth(&self) -> Result<Depth, QueueError> {
        let depth = self.inner.store.depth(&self.inner.name).await?;
        measure::depth(&self.inner.name, &depth);
        Ok(depth)
    }

    /// The items that are not dead, the oldest first as far as the store can.
    ///
    /// # Errors
    /// As items of the stream, which ends after one.
    #[must_use]
    pub fn items(&self) -> BoxStream<'static, Result<ItemState, StoreError>> {
        self.inner.store.items(&self.inner.name, false)
    }

    /// The items that were buried, with the reason of each.
    ///
    /// # Errors
    /// As items of the stream, which ends after one.
    #[must_use]
    pub fn dead(&self) -> BoxStream<'static, Result<ItemState, StoreError>> {
        self.inner.store.items(&self.inner.name, true)
    }

    /// Puts a dead item back, at the end of its group and with no attempts. Says whether
    /// it was dead.
    ///
    /// # Errors
    /// [`QueueError::Store`].
    ///
    /// # Cancel safety
    /// May or may not have taken effect; repeating it is safe.
    pub async fn requeue(&self, item: ItemId) -> Result<bool, QueueError> {
        Ok(self.inner.store.requeue(&self.inner.name, item).await?)
    }

    /// Stops this client and its clones, within `limit`: nothing is claimed any more, and
    /// every claim is lost at once, so that its work stops. Claims whose handles are
    /// dropped give their items back; the attempts do not count. Returns when everything
    /// is given back, or when `limit` is over.
    ///
    /// To let work end first, stop a [`Worker`] instead.
    ///
    /// # Cancel safety
    /// The client is stopped from the first poll on; call it again to wait for the rest.
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let inner = &self.inner;
        inner.closing.cancel();
        let begun = inner.clock.now();
        let until = begun.after(limit);
        let mut asking = inner.asking.subscribe();
        // Whoever asks the store now gives up, and what it may have got with it: at its
        // next poll, for which nobody waits for ever.
        tokio::select! {
            biased;
            _ = asking.wait_for(|count| *count == 0) => {}
            () = inner.clock.sleep_until(begun.after(limit / 4)) => {}
        }
        let left = until.since(inner.clock.now());
        inner.leases.shutdown(left).await
    }
}

impl<T, C> Clone for Queue<T, C> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.inner))
    }
}

impl<T, C> fmt::Debug for Queue<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.inner.name)
            .field("store", &self.inner.can.guarantees.store)
            .finish_non_exhaustive()
    }
}
