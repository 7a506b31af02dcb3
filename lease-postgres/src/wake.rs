//! Wake-ups: who waits for which key, by one connection that listens.
//!
//! # One channel, and a mark at the key
//! Everybody listens on one channel of the store, and a notification names a
//! key. A notification keeps others' commits waiting, so it is sent only for a
//! key that somebody waits for: a watcher writes into the key's row until when it
//! does, and writes it anew while it goes on. Whoever frees the key sees that in
//! the very row that it changes, so nothing is missed between the two.
//!
//! # One connection per runtime
//! A connection lives in the tokio runtime that opened it and dies with it. So
//! each runtime that watches has a [`Hub`] of its own, with a task that owns the
//! connection; when the runtime ends, the task is dropped, and the streams of
//! that runtime end.

mod hub;
mod task;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{StoreError, StoreErrorKind};
use sqlx::SqlStr;
use tokio::runtime::{self, Handle};

use crate::connection::Origin;
use hub::{Hub, Seat};

/// What a task needs to listen.
#[derive(Clone)]
struct Source {
    origin: Origin,
    /// The statement that marks keys as waited for.
    wait: SqlStr,
    channel: String,
}

/// The wake-ups of one store.
pub(crate) struct WakeUps {
    source: Source,
    hubs: Arc<Hubs>,
}

impl WakeUps {
    /// Opens nothing yet.
    pub(crate) fn new(origin: Origin, wait: SqlStr, channel: String) -> Self {
        Self {
            source: Source {
                origin,
                wait,
                channel,
            },
            hubs: Arc::default(),
        }
    }

    /// Hints for `key` from the return of this call on. A watcher that is slow
    /// has one hint waiting, never more.
    ///
    /// When the connection is lost, it is opened again as long as somebody
    /// watches, and each watcher gets a hint then. The stream ends with the
    /// runtime in which this was called.
    ///
    /// # Errors
    /// Of the first attempt to listen that began or was under way after the call;
    /// at once outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future or the stream ends the subscription.
    pub(crate) async fn watch(&self, key: String) -> Result<BoxStream<'static, ()>, StoreError> {
        let mut seat = self.seat(key)?;
        seat.subscribed().await?;
        Ok(stream::unfold(seat, |mut seat| async move {
            seat.hint().await.map(|()| ((), seat))
        })
        .boxed())
    }

    fn seat(&self, key: String) -> Result<Seat, StoreError> {
        let runtime = Handle::try_current().map_err(|error| {
            StoreError::with_source(
                StoreErrorKind::Unavailable,
                "wake-ups need a tokio runtime; watch from a task of one",
                error,
            )
        })?;
        let id = runtime.id();
        // A seat is taken under the lock, so that its hub does not end
        // meanwhile for want of watchers.
        let mut hubs = self.hubs.lock();
        if let Some(hub) = hubs.get(&id) {
            return Ok(hub.seat(key));
        }
        let hub = Arc::new(Hub::new());
        let seat = hub.seat(key);
        hubs.insert(id, Arc::clone(&hub));
        // A runtime that is shutting down drops the task at once, and its place
        // locks the map.
        drop(hubs);
        let place = Place {
            hub,
            id,
            hubs: Arc::downgrade(&self.hubs),
        };
        runtime.spawn(task::run(place, self.source.clone()));
        Ok(seat)
    }
}

impl Drop for WakeUps {
    /// Streams go on; connections end with the last of their streams.
    fn drop(&mut self) {
        for hub in self.hubs.lock().values() {
            hub.close();
        }
    }
}

impl fmt::Debug for WakeUps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakeUps").finish_non_exhaustive()
    }
}

/// The hub of each runtime that watches.
#[derive(Default)]
struct Hubs(Mutex<HashMap<runtime::Id, Arc<Hub>>>);

impl Hubs {
    fn lock(&self) -> MutexGuard<'_, HashMap<runtime::Id, Arc<Hub>>> {
        // Nothing panics while the map is being changed.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A hub's place among the others, in the hands of its task. When the task
/// ends or is dropped with its runtime, the hub ends.
struct Place {
    hub: Arc<Hub>,
    id: runtime::Id,
    hubs: Weak<Hubs>,
}

impl Place {
    /// Gives the place up, if nobody has taken a seat meanwhile.
    fn retire(&self) -> bool {
        let hubs = self.hubs.upgrade();
        let hubs = hubs.as_ref().map(|hubs| hubs.lock());
        if self.hub.is_watched() {
            return false;
        }
        self.leave(hubs);
        true
    }

    fn leave(&self, hubs: Option<MutexGuard<'_, HashMap<runtime::Id, Arc<Hub>>>>) {
        if let Some(mut hubs) = hubs
            && hubs
                .get(&self.id)
                .is_some_and(|hub| Arc::ptr_eq(hub, &self.hub))
        {
            hubs.remove(&self.id);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let hubs = self.hubs.upgrade();
        self.leave(hubs.as_ref().map(|hubs| hubs.lock()));
        self.hub.end();
    }
}
