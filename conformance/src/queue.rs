//! The suite of queues: what the contract of [`QueueStore`] means, as named cases that
//! any store of queues can be run against.
//!
//! Make a test without the standard harness, as for the suite of leases, and give the
//! suite an empty store for each case:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use lease_conformance::queue;
//! use lease_queue::{MemoryQueues, QueueStore};
//!
//! fn main() -> ExitCode {
//!     let mine = queue::fixture_fn(|| async {
//!         let store = MemoryQueues::new();
//!         Ok(move || Arc::new(store.clone()) as Arc<dyn QueueStore>)
//!     });
//!     queue::main("mine", mine)
//! }
//! ```
//!
//! A store of queues also runs the suite of leases, through
//! [`KeyedLeases`](lease_queue::KeyedLeases). Tests of what is built on a store wrap it in
//! one that counts, or fails when it is told to: see [`Wraps`].
//!
//! # What it holds a store to
//! | group | rules |
//! | --- | --- |
//! | `put` | order, repetition, deduplication, bounds, delays |
//! | `claim` | attempts, batches, one winner of many |
//! | `tokens` | that they only rise: per item, per group, per reused key |
//! | `settle`, `late` | that each acts on exactly its own live claim, and a late worker on nothing |
//! | `retry`, `dead` | delays, what counts as an attempt, what is set aside and put back |
//! | `groups` | one owner at a time, first in, first out, in a race of many clients |
//! | `crashes` | that each item is completed once, and in order, while workers crash |
//! | `abandon`, `fence` | that what is given up or cut off is free, and stays refused |
//! | `waiting`, `depth` | hints, and what is told of a queue |
//! | `restart`, `unknown_outcome` | what outlives a crash; calls whose reply was lost |
//!
//! # What it does not test
//! What the suite of leases tests of the same store: histories of keys, TTLs at their
//! limits, data loss, pauses. That a tombstone lasts ten minutes. How fast it is.
//!
//! [`QueueStore`]: lease_queue::QueueStore

mod case;
mod cases;
mod client;
mod context;
mod fixture;
mod harness;
mod wrapped;

pub use fixture::{QueueFixture, QueueTarget, fixture_fn};
pub use harness::{QueueSuites, case_names, check, check_only, main, run};
pub use wrapped::{Wrapped, Wraps};
