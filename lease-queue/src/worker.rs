//! Workers: claim, run a handler, settle.

mod run;
mod verdict;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{Key, Lease, Token};
use tokio_util::sync::CancellationToken;

pub use verdict::Verdict;

use crate::codec::{Codec, Json};
use crate::error::QueueError;
use crate::item::ItemId;
use crate::queue::{Hold, Queue};

/// How long work may go on after a worker was stopped, unless said otherwise.
const GRACE: Duration = Duration::from_secs(30);

/// What a handler knows of its item: everything but its end.
///
/// A clone that outlives the handler keeps nothing: it sees the lease lost once the
/// worker has done with the item, settled or not.
#[derive(Clone, Debug)]
pub struct Job(Arc<Hold>);

impl Job {
    /// The item.
    #[must_use]
    pub fn item(&self) -> ItemId {
        self.0.claim().item
    }

    /// The item's group.
    #[must_use]
    pub fn group(&self) -> Option<&Key> {
        self.0.group()
    }

    /// Which attempt this is, from 1. Never a fence.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// How long ago the item was put when it was claimed.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.0.age
    }

    /// The fencing token: show it with every write.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.lease.token()
    }

    /// The lease. The handler is dropped at its loss; call its `check` before each write
    /// of code that does not await.
    pub fn lease(&self) -> &Lease {
        &self.0.lease
    }

    /// Says that the work makes progress, where the queue asks for it.
    pub fn progress(&self) {
        self.0.lease.progress();
    }
}

/// How a worker's run went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkReport {
    /// Items that were completed.
    pub completed: u64,
    /// Attempts that failed: the handler said so, panicked or was held too long.
    pub failed: u64,
    /// Items that were given back uncounted, or after a time that the handler chose.
    pub given_back: u64,
    /// Claims that were lost before they could be settled.
    pub lost: u64,
}

/// Takes items off a queue and runs a handler for each. Made by [`Queue::worker`].
#[must_use = "nothing is claimed before `run`"]
pub struct Worker<T, C = Json> {
    queue: Queue<T, C>,
    at_once: usize,
    stop: CancellationToken,
    grace: Duration,
}

impl<T, C> Worker<T, C> {
    pub(crate) fn new(queue: Queue<T, C>, at_once: usize) -> Self {
        Self {
            queue,
            at_once: at_once.max(1),
            stop: CancellationToken::new(),
            grace: GRACE,
        }
    }

    /// Stops the worker when this fires: nothing more is claimed, and what runs has the
    /// [`grace`](Self::grace) to end.
    pub fn stop_with(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    /// How long handlers may go on after the worker was stopped. Those that run longer
    /// are dropped, and their items given back uncounted. Defaults to 30 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }
}

impl<T, C> Worker<T, C>
where
    T: Send + 'static,
    C: Codec<T>,
{
    /// Runs `handler` for each item, up to as many at a time as the worker was made for,
    /// until it is stopped.
    ///
    /// What the handler returns decides: `()` and `Ok(())` complete the item, an error
    /// fails the attempt, and a [`Verdict`] says more. A panic fails the attempt. The
    /// handler is dropped, at its present await point, when the claim is lost; one that
    /// was held too long, or made no progress, fails the attempt.
    ///
    /// # Errors
    /// As [`Queue::claim`], once what runs has ended as at a stop.
    ///
    /// # Cancel safety
    /// Dropping the future drops the handlers and gives their items back in the
    /// background, uncounted.
    pub async fn run<F, Fut>(self, handler: F) -> Result<WorkReport, QueueError>
    where
        F: Fn(T, Job) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: Into<Verdict>,
    {
        run::run(self, handler).await
    }
}

impl<T, C> fmt::Debug for Worker<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("queue", &self.queue)
            .field("at_once", &self.at_once)
            .field("grace", &self.grace)
            .finish_non_exhaustive()
    }
}
