//! Wake-ups: who listens for which channel, by one connection.
//!
//! # One connection per runtime
//! A connection and its tasks live in the tokio runtime that opened them and
//! die with it. So each runtime that watches has a [`Hub`] of its own, with a
//! task that owns the connection; when the runtime ends, the task is dropped,
//! and the streams of that runtime end.
//!
//! # Why a connection of its own, and RESP2's way
//! The store's other connections are never subscribed. A push in the midst of
//! their answers would need RESP3, which servers before version 6, some
//! proxies and a user's own client need not speak. `get_async_pubsub` takes a
//! plain connection and understands the messages of both protocols, so that it
//! works whatever `?protocol=` says. It also keeps a flood of messages away
//! from renewals.

mod channels;
mod hub;
mod shards;
mod task;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::StoreError;
use tokio::runtime::{self, Handle};

use crate::servers::Servers;
use hub::{Hub, Seat};

/// How long a connection that nobody needs is kept for the next watcher.
const LINGER: Duration = Duration::from_secs(10);

/// The time limits of a connection for wake-ups.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// For opening it.
    connect: Duration,
    /// For an answer; and how long it may be silent before it is asked whether
    /// it is still there.
    response: Duration,
    linger: Duration,
}

/// Called when a connection to a node of a cluster failed.
pub(crate) type Lost = Arc<dyn Fn() + Send + Sync>;

/// The wake-ups of one store, or of one node of a cluster.
pub(crate) struct WakeUps {
    servers: Servers,
    limits: Limits,
    /// Of a node of a cluster, whose channels are sharded ones.
    lost: Option<Lost>,
    hubs: Arc<Hubs>,
}

impl WakeUps {
    /// Opens nothing yet. `connect_timeout` is for opening a connection, and
    /// `response_timeout` for an answer on it; a connection is taken for dead
    /// at the latest after twice the latter.
    pub(crate) fn new(
        servers: Servers,
        connect_timeout: Duration,
        response_timeout: Duration,
    ) -> Self {
        Self {
            servers,
            limits: Limits {
                connect: connect_timeout,
                response: response_timeout,
                linger: LINGER,
            },
            lost: None,
            hubs: Arc::default(),
        }
    }

    /// The same, of a node of a cluster: by sharded channels, and `lost` is
    /// called each time that the connection fails.
    pub(crate) fn sharded(mut self, lost: Lost) -> Self {
        self.lost = Some(lost);
        self
    }

    /// Hints for each message on `channel` from the return of this call on. A
    /// watcher that is slow has one hint waiting, never more.
    ///
    /// When the connection is lost, it is opened again as long as somebody
    /// watches, and each watcher gets a hint then. The stream ends with the
    /// runtime in which this was called.
    ///
    /// # Errors
    /// Of the first attempt to subscribe that began or was under way after the
    /// call; at once outside of a tokio runtime.
    ///
    /// # Cancel safety
    /// Dropping the future or the stream ends the subscription, once nobody
    /// else watches the channel.
    pub(crate) async fn watch(
        &self,
        channel: String,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        let mut seat = self.seat(channel)?;
        seat.subscribed().await?;
        Ok(stream::unfold(seat, |mut seat| async move {
            seat.hint().await.map(|()| ((), seat))
        })
        .boxed())
    }

    fn seat(&self, channel: String) -> Result<Seat, StoreError> {
        let runtime = Handle::try_current().map_err(|error| {
            StoreError::with_source(
                lease_core::StoreErrorKind::Unavailable,
                "wake-ups need a tokio runtime; watch from a task of one",
                error,
            )
        })?;
        let id = runtime.id();
        // A seat is taken under the lock, so that its hub does not end
        // meanwhile for want of watchers.
        let mut hubs = self.hubs.lock();
        if let Some(hub) = hubs.get(&id) {
            return Ok(hub.seat(channel));
        }
        let hub = Arc::new(Hub::new(self.limits.linger));
        let seat = hub.seat(channel);
        hubs.insert(id, Arc::clone(&hub));
        // A runtime that is shutting down drops the task at once, and its place
        // locks the map.
        drop(hubs);
        let place = Place {
            hub,
            id,
            hubs: Arc::downgrade(&self.hubs),
        };
        let (servers, lost) = (self.servers.clone(), self.lost.clone());
        runtime.spawn(task::run(place, servers, self.limits, lost));
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
        f.debug_struct("WakeUps")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
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

#[cfg(test)]
mod tests;
