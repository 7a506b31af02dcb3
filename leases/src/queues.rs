//! From a URL to a store of queues.

#[cfg(feature = "nats")]
mod gate;
#[cfg(any(feature = "redis", feature = "postgres", feature = "nats"))]
pub(crate) mod server;

use std::sync::Arc;

use lease_core::{Error, InvalidInput};
use lease_queue::{MemoryQueues, QueueStore};

use crate::connect::{self, Connect};
use crate::known::{self, KNOWN, Kind, Known};
use crate::url;

/// The store of queues that `url` names: `memory:`, or a URL with `queue+` before it. For
/// [`Queue::builder`](lease_queue::Queue::builder).
///
/// `memory:` is a new, empty store each time. A `?queue=NAME` in the URL names the queue
/// whose keys [`open`](crate::open) leases, and means nothing here.
///
/// # Errors
/// As [`connect`](crate::connect), and [`InvalidInput::Url`] for a store that keeps no
/// queues.
///
/// # Cancel safety
/// As [`connect`](crate::connect).
pub async fn open_queue(url: &str) -> Result<Arc<dyn QueueStore>, Error> {
    opened(url, Connect::Now).await
}

/// As [`open_queue`], without waiting for servers.
///
/// # Errors
/// As [`open_queue`], but that a server is out of reach shows when the store is used.
///
/// # Cancel safety
/// As [`connect`](crate::connect).
pub async fn open_queue_lazily(url: &str) -> Result<Arc<dyn QueueStore>, Error> {
    opened(url, Connect::Later).await
}

/// As [`open_queue`], for a program that only looks: as [`open_to_look`](crate::open_to_look).
///
/// # Errors
/// As there.
///
/// # Cancel safety
/// As [`connect`](crate::connect).
pub async fn open_queue_to_look(url: &str) -> Result<Arc<dyn QueueStore>, Error> {
    opened(url, Connect::ToLook).await
}

async fn opened(url: &str, connect: Connect) -> Result<Arc<dyn QueueStore>, Error> {
    #[cfg(not(any(feature = "redis", feature = "postgres", feature = "nats")))]
    let _ = connect;
    let scheme = url::scheme(url)?;
    let Some(known) = known::find(&scheme) else {
        return Err(connect::unknown(&scheme));
    };
    match known.kind {
        Kind::Memory => {
            connect::plain_memory(url)?;
            Ok(Arc::new(MemoryQueues::new()))
        }
        #[cfg(feature = "redis")]
        Kind::QueueRedis => server::queues(known.kind, &scheme, url, connect).await,
        #[cfg(not(feature = "redis"))]
        Kind::QueueRedis => Err(connect::feature_off(known)),
        #[cfg(feature = "postgres")]
        Kind::QueuePostgres => server::queues(known.kind, &scheme, url, connect).await,
        #[cfg(not(feature = "postgres"))]
        Kind::QueuePostgres => Err(connect::feature_off(known)),
        #[cfg(feature = "nats")]
        Kind::Nats => server::queues(known.kind, &scheme, url, connect).await,
        #[cfg(not(feature = "nats"))]
        Kind::Nats => Err(connect::feature_off(known)),
        _ => Err(no_queues(known, &scheme)),
    }
}

fn no_queues(known: &Known, scheme: &str) -> Error {
    let own = format!("queue+{scheme}");
    let advice = match known::find(&own) {
        Some(_) => format!("write {own}: for queues on it"),
        None => {
            let all = KNOWN.iter().flat_map(|known| known.schemes);
            let queues: Vec<_> = all.filter(|s| s.starts_with("queue+")).copied().collect();
            format!("queues are kept by memory, {}", queues.join(", "))
        }
    };
    InvalidInput::Url(format!(
        "the store {} keeps leases and no queues; {advice}",
        known.name
    ))
    .into()
}
