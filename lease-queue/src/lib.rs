//! Queue ownership: who holds an item owns its work.
//!
//! Most queues let a late worker acknowledge, extend or return an item that was already
//! given to somebody else, and call a count of deliveries a version. Here a claimed item
//! is held under a lease: with a fencing token that only rises, a deadline that its
//! holder knows, renewal in the background and loss as a signal. Every write to a claimed
//! item is one conditional step at the store, on *this item, this owner, this token, not
//! expired*: a late worker is told [`Settled::Lost`], and whoever holds the item by then
//! keeps it, untouched.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use lease_queue::{Job, MemoryQueues, Queue};
//! use serde::{Deserialize, Serialize};
//! use tokio_util::sync::CancellationToken;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Invoice {
//!     customer: String,
//!     cents: u64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Arc::new(MemoryQueues::new());
//! let queue = Queue::<Invoice>::builder(store, "invoices")
//!     .ttl(Duration::from_secs(30))
//!     .max_attempts(5)
//!     .build()?;
//!
//! // One owner at a time for each customer, first in, first out.
//! let invoice = Invoice { customer: "ann".into(), cents: 1200 };
//! queue.put(&invoice).group(&invoice.customer).dedup("invoice/7").await?;
//!
//! // By hand: claim, work under the lease, complete.
//! let claim = queue.claim().await?;
//! claim
//!     .lease()
//!     .run(async {
//!         // Show the token with every write; the resource refuses older ones.
//!         let _write = (claim.token(), claim.payload().cents);
//!     })
//!     .await?;
//! claim.complete().await?;
//!
//! // Or by workers: eight at a time, until they are stopped.
//! queue.put(&invoice).await?;
//! let stop = CancellationToken::new();
//! let stopping = stop.clone();
//! let report = queue
//!     .worker(8)
//!     .stop_with(stop)
//!     .run(move |invoice: Invoice, job: Job| {
//!         let stop = stopping.clone();
//!         async move {
//!             job.lease().check().map_err(|lost| lost.to_string())?;
//!             println!("{} pays {}", invoice.customer, invoice.cents);
//!             stop.cancel();
//!             Ok::<(), String>(())
//!         }
//!     })
//!     .await?;
//! assert_eq!(report.completed, 1);
//! # Ok(()) }
//! ```
//!
//! # What is promised
//! * **Each item is worked on until somebody completes it.** A claim whose worker
//!   crashes, hangs ([`max_hold`](QueueBuilder::max_hold)) or is cut off expires, and the
//!   item goes to the next. So a handler may run more than once for an item, and twice at
//!   the same time for a moment if it ignores its loss: the token tells the two apart at
//!   the resource. After [`max_attempts`](QueueBuilder::max_attempts) the item is buried,
//!   where people find it ([`Queue::dead`]) and put it back ([`Queue::requeue`]).
//! * **At most one owner** of an item, and of a group, as far as the store's
//!   [`guarantees`](Capabilities::guarantees) reach.
//! * **Nothing is lost in silence.** A put and a completion whose reply was lost are
//!   repeated safely, and an outcome that stays unknown is told as such: a claim that
//!   could not be settled comes back in the error.
//!
//! # How a claim ends
//! | call | the item | the attempt |
//! | --- | --- | --- |
//! | [`complete`](Claim::complete) | leaves the queue | |
//! | [`fail`](Claim::fail) | waits for the backoff; is buried after the last attempt | counts |
//! | [`retry_after`](Claim::retry_after) | waits for as long as is said | counts |
//! | [`abandon`](Claim::abandon), or a drop | goes back to its place at once | does not count |
//! | [`bury`](Claim::bury) | is set aside | counts |
//! | nothing: a crash | goes back to its place at the claim's expiry | counts |
//!
//! # Leases on a queue
//! [`KeyedLeases`] makes any store of queues one of plain leases, by one permanent token
//! item for each key.
//!
//! # A store of your own
//! Implement [`QueueStore`], and run both suites of `lease-conformance` against it.
//! [`MemoryQueues`] is the reference.
//!
//! # On Redis
//! With the cargo feature `redis`: `redis::RedisQueues`, for `queue+redis://` and its kin.
//!
//! # On Postgres
//! With the cargo feature `postgres`: `postgres::PostgresQueues`, for `queue+postgres://`.
//!
//! # On NATS
//! With the cargo feature `nats`: `nats::NatsStore`, for `nats://`.
#![forbid(unsafe_code)]

mod check;
mod codec;
mod error;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod gather;
mod item;
mod keyed;
mod measure;
mod memory;
mod name;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "postgres")]
pub mod postgres;
mod queue;
#[cfg(feature = "redis")]
pub mod redis;
// Public only where tests may take a rule out.
#[cfg_attr(not(feature = "broken-rules"), allow(unreachable_pub))]
mod rules;
mod store;
mod table;
mod worker;

pub use check::{check_claim, check_items, check_put, check_settle};
pub use codec::{Codec, CodecError, Json, Raw};
pub use error::{QueueError, SettleError};
pub use item::{ClaimRef, Claimed, ItemId, ItemState, NewItem, Phase};
pub use keyed::KeyedLeases;
pub use memory::MemoryQueues;
pub use name::{GROUP_BYTES, Lane, QUEUE_NAME_BYTES, QueueInput, QueueName};
pub use queue::{Backoff, Claim, Put, Queue, QueueBuilder};
#[cfg(feature = "broken-rules")]
pub use rules::QueueRules;
pub use store::{
    Added, Answer, Capabilities, ClaimRequest, Depth, MAX_BATCH, MAX_BODY_BYTES, MAX_DELAY,
    QueueStore, Settle, Settled, What,
};
pub use worker::{Job, Verdict, WorkReport, Worker};
