//! A history, and whether any store that keeps the contract could have made it.
//!
//! The suite's own histories are of calls. [`Holdings`] are of handles, for runs
//! under faults of your own store: who believed when to hold what.

mod check;
mod holdings;

use std::sync::Mutex;
use std::time::Duration;

use lease_core::{Owner, Token, Ttl};
use tokio::time::Instant;

pub(crate) use check::violation;
pub use holdings::{Holding, Holdings};

/// A call that ended a grant, or may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// Acquire was answered with Granted.
    Granted { token: Token, ttl: Ttl },
    /// Renew was answered with Renewed.
    Renewed { token: Token, ttl: Ttl },
    /// A handle came with this reply and was believed in until then.
    Held { token: Token, until: Duration },
    /// The owner released; its grant may have ended at any time after the send.
    Released,
    /// The owner abandoned.
    Abandoned,
}

/// One answered call: when, by whom, and what came of it.
///
/// A call without an answer is not in the history, except a release or an
/// abandon, which count from their send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: usize,
    pub(crate) owner: Owner,
    /// Since the start, on one monotonic clock for all.
    pub(crate) sent: Duration,
    pub(crate) replied: Duration,
    pub(crate) done: Done,
}

/// Collects the records of many tasks on one clock.
#[derive(Debug)]
pub(crate) struct Recorder {
    start: Instant,
    records: Mutex<Vec<Record>>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            records: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Notes a call that was sent at `sent` and answered just now.
    pub(crate) fn note(
        &self,
        key: usize,
        owner: Owner,
        sent: Duration,
        replied: Duration,
        done: Done,
    ) {
        let mut records = self.records.lock().unwrap_or_else(|e| e.into_inner());
        records.push(Record {
            key,
            owner,
            sent,
            replied,
            done,
        });
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        let records = self.records.lock().unwrap_or_else(|e| e.into_inner());
        records.clone()
    }
}
