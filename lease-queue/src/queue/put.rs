//! Putting an item.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lease_core::{InvalidInput, Key, StoreError};

use crate::codec::Codec;
use crate::error::QueueError;
use crate::item::{ItemId, NewItem};
use crate::measure;
use crate::name::QueueInput;
use crate::queue::{Inner, Queue};
use crate::store::{Added, MAX_BATCH};

/// How often a put is sent whose outcome is not known: its identity makes that safe.
const TRIES: u32 = 4;
/// Before it is sent again; twice as long each time.
const PAUSE: Duration = Duration::from_millis(20);

impl<T, C: Codec<T>> Queue<T, C> {
    /// Begins to put an item with this payload. Nothing is sent before
    /// [`send`](Put::send), or before the put is awaited, which also report what is not
    /// valid.
    ///
    /// The item's identity is drawn here: to send the same put again never adds it twice.
    pub fn put(&self, payload: &T) -> Put {
        let body = C::encode(payload).map_err(QueueError::Payload);
        let item = body.and_then(|body| {
            Ok(NewItem {
                id: ItemId::random()?,
                body,
                group: None,
                dedup: None,
                delay: Duration::ZERO,
            })
        });
        Put {
            inner: Arc::clone(self.inner()),
            item,
        }
    }

    /// Puts many items, in order and without further ado, in as many batches as it
    /// takes. Each batch is added as a whole or not at all.
    ///
    /// # Errors
    /// As [`Put::send`]; the batches before the failed one are in the queue.
    ///
    /// # Cancel safety
    /// Some batches may have been added.
    pub async fn put_many<'a>(
        &self,
        payloads: impl IntoIterator<Item = &'a T>,
    ) -> Result<Vec<ItemId>, QueueError>
    where
        T: 'a,
    {
        let items = payloads
            .into_iter()
            .map(|payload| self.put(payload).item)
            .collect::<Result<Vec<NewItem>, QueueError>>()?;
        let most = self.inner().store.capabilities().max_put;
        let mut rest = items.as_slice();
        while !rest.is_empty() {
            let (batch, later) = rest.split_at(fit(rest, most));
            send(self.inner(), batch).await?;
            rest = later;
        }
        Ok(items.into_iter().map(|item| item.id).collect())
    }
}

/// How many of these items one put takes; one at least.
fn fit(items: &[NewItem], most: usize) -> usize {
    let mut bytes = 0usize;
    let fits = |item: &&NewItem| {
        bytes = bytes.saturating_add(item.body.len());
        bytes <= most
    };
    items.iter().take(MAX_BATCH).take_while(fits).count().max(1)
}

/// An item, before it is put.
#[must_use = "nothing is put before `send`, or before it is awaited"]
pub struct Put {
    inner: Arc<Inner>,
    item: Result<NewItem, QueueError>,
}

impl Put {
    fn set(mut self, set: impl FnOnce(&mut NewItem) -> Result<(), QueueError>) -> Self {
        if let Ok(item) = &mut self.item
            && let Err(error) = set(item)
        {
            self.item = Err(error);
        }
        self
    }

    /// The group that the item belongs to: its items have one owner at a time, and are
    /// claimed in the order of their puts.
    pub fn group(self, group: impl AsRef<str>) -> Self {
        self.set(|item| {
            let key = Key::new(group).map_err(|e| QueueInput::Group(Some(e)))?;
            item.group = Some(key);
            Ok(())
        })
    }

    /// No second item with this key while one is in the queue, or was completed within
    /// the store's [`dedup_window`](crate::Capabilities::dedup_window).
    pub fn dedup(self, key: impl AsRef<str>) -> Self {
        self.set(|item| {
            item.dedup = Some(Key::new(key)?);
            Ok(())
        })
    }

    /// The item cannot be claimed before this has passed.
    pub fn delay(self, delay: Duration) -> Self {
        self.set(|item| {
            item.delay = delay;
            Ok(())
        })
    }

    /// The item's identity, unless something about it is not valid.
    #[must_use]
    pub fn id(&self) -> Option<ItemId> {
        self.item.as_ref().ok().map(|item| item.id)
    }

    /// Puts the item. What fails without a refusal is sent again, a few times; after
    /// that call this again on the same put: it adds the item once.
    ///
    /// # Errors
    /// [`QueueError::Payload`], [`QueueError::Input`] and [`QueueError::Invalid`] before
    /// anything is sent; [`QueueError::Store`], with an unknown outcome when the item may
    /// have been added.
    ///
    /// # Cancel safety
    /// The item may or may not be in the queue; send the same put again.
    pub async fn send(&mut self) -> Result<Added, QueueError> {
        let item = match &self.item {
            Ok(item) => item,
            Err(_) => {
                let taken = QueueError::Input(QueueInput::Spent);
                return Err(match std::mem::replace(&mut self.item, Err(taken)) {
                    Err(error) => error,
                    Ok(_) => QueueError::Input(QueueInput::Spent),
                });
            }
        };
        let added = send(&self.inner, std::slice::from_ref(item)).await?;
        let unanswered = || StoreError::unknown_outcome("the store gave no outcome of the put");
        Ok(added.into_iter().next().ok_or_else(unanswered)?)
    }
}

async fn send(inner: &Inner, items: &[NewItem]) -> Result<Vec<Added>, QueueError> {
    for item in items {
        if let Some(group) = &item.group
            && group.as_str().len() > crate::name::GROUP_BYTES
        {
            return Err(QueueInput::Group(Some(InvalidInput::KeyTooLong {
                bytes: group.as_str().len(),
            }))
            .into());
        }
    }
    let mut tries = 1;
    loop {
        match inner.store.put(&inner.name, items).await {
            Ok(added) => {
                measure::put(&inner.name, &added);
                return Ok(added);
            }
            Err(error) if error.is_transient() && tries < TRIES => {
                let pause = inner.clock.now().after(PAUSE * (1 << tries));
                inner.clock.sleep_until(pause).await;
                tries += 1;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

impl IntoFuture for Put {
    type Output = Result<Added, QueueError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move { self.send().await })
    }
}

impl fmt::Debug for Put {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Put")
            .field("queue", &self.inner.name)
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
