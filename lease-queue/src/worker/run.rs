//! The run of a worker: claims beside running handlers, and how it stops.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lease_core::{LostReason, StoreErrorKind};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Job, Verdict, WorkReport, Worker};
use crate::codec::Codec;
use crate::error::QueueError;
use crate::queue::{Claim, Hold, Unsettled};
use crate::store::{MAX_BATCH, Settle};

/// How one item's work ended.
enum End {
    Completed,
    Failed,
    GivenBack,
    Lost,
}

pub(super) async fn run<T, C, F, Fut>(
    worker: Worker<T, C>,
    handler: F,
) -> Result<WorkReport, QueueError>
where
    T: Send + 'static,
    C: Codec<T>,
    F: Fn(T, Job) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: Into<Verdict>,
{
    let (queue, handler) = (&worker.queue, Arc::new(handler));
    let halt = CancellationToken::new();
    let mut report = WorkReport::default();
    let mut running = JoinSet::new();
    // Kept over rounds: a claim that is dropped half way must be abandoned. There is one
    // only while a slot is free, and it is always polled: it may be the first in line.
    let mut claiming = None;
    let failed = loop {
        // All that have ended by now: what they leave free is asked for together.
        while let Some(ended) = running.try_join_next() {
            report.count(ended.ok());
        }
        // A store may give more than it was asked for.
        let free = worker.at_once.saturating_sub(running.len());
        if claiming.is_none() && free > 0 {
            claiming = Some(Box::pin(queue.claim_batch(free.min(MAX_BATCH))));
        }
        let claimed = async {
            match &mut claiming {
                Some(claiming) => claiming.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = worker.stop.cancelled() => break None,
            Some(ended) = running.join_next(), if !running.is_empty() => {
                report.count(ended.ok());
            }
            claimed = claimed => {
                claiming = None;
                match claimed {
                    Ok(claims) => for claim in claims {
                        running.spawn(work(claim, Arc::clone(&handler), halt.clone()));
                    },
                    Err(error) => break Some(error),
                }
            }
        }
    };
    drop(claiming);
    let clock = &queue.inner().clock;
    let over = clock.now().after(worker.grace);
    let mut halted = false;
    while !running.is_empty() {
        tokio::select! {
            biased;
            Some(ended) = running.join_next() => report.count(ended.ok()),
            () = clock.sleep_until(over), if !halted => {
                halted = true;
                halt.cancel();
            }
        }
    }
    match failed {
        None => Ok(report),
        Some(error) => Err(error),
    }
}

impl WorkReport {
    fn count(&mut self, end: Option<End>) {
        let count = match end {
            Some(End::Completed) => &mut self.completed,
            Some(End::Failed) => &mut self.failed,
            Some(End::GivenBack) => &mut self.given_back,
            Some(End::Lost) | None => &mut self.lost,
        };
        *count += 1;
    }
}

/// One item: its handler until it ends, is lost or is halted; then its settle.
async fn work<T, F, Fut>(claim: Claim<T>, handler: Arc<F>, halt: CancellationToken) -> End
where
    F: Fn(T, Job) -> Fut,
    Fut: Future,
    Fut::Output: Into<Verdict>,
{
    let (payload, hold) = claim.split();
    let hold = Ours(hold);
    let job = Job(Arc::clone(&hold.0));
    let handled = AssertUnwindSafe(async move { handler(payload, job).await.into() });
    let verdict = tokio::select! {
        biased;
        lost = hold.0.lease.lost() => match lost.reason {
            LostReason::Store(_) => return End::Lost,
            LostReason::Shutdown | LostReason::RuntimeGone => Verdict::Abandon,
            // It may be live at the store still.
            _ => Verdict::Fail(lost.to_string()),
        },
        verdict = handled.catch_unwind() => verdict.unwrap_or_else(|panic| {
            Verdict::Fail(format!("the handler panicked: {}", words_of(panic.as_ref())))
        }),
        () = halt.cancelled() => Verdict::Abandon,
    };
    settle(&hold.0, verdict).await
}

/// A worker's part of a claim. However that ends, nothing keeps the claim any more, even
/// if its handler has left a clone of its job somewhere.
struct Ours(Arc<Hold>);

impl Drop for Ours {
    fn drop(&mut self) {
        // Without one the lease ends as quietly as it does by hand.
        if Arc::strong_count(&self.0) > 1 {
            self.0.lease.give_up();
        }
    }
}

async fn settle(hold: &Hold, verdict: Verdict) -> End {
    let (mut settle, mut end) = match verdict {
        Verdict::Complete => (Settle::Complete, End::Completed),
        Verdict::RetryAfter(delay) => (retry(delay, true), End::GivenBack),
        Verdict::Abandon => (retry(Duration::ZERO, false), End::GivenBack),
        Verdict::Fail(why) => (hold.failed(&why), End::Failed),
        Verdict::Bury(reason) => (hold.buried(&reason), End::Failed),
    };
    let mut refused = false;
    loop {
        match hold.settle(settle.clone()).await {
            Ok(()) => return end,
            Err(Unsettled::Lost(_)) => return End::Lost,
            Err(Unsettled::Store(error))
                if error.kind() == StoreErrorKind::InvalidInput && !refused =>
            {
                // A delay that no store takes, say: the handler is at fault. What the
                // store says of that in turn is the last word.
                refused = true;
                settle = hold.failed(&error.to_string());
                end = End::Failed;
            }
            Err(Unsettled::Store(error)) => {
                if !error.is_transient() || hold.lease.check().is_err() {
                    // Its release goes on with it in the background, for a TTL.
                    hold.finally(settle);
                    return End::Lost;
                }
            }
        }
    }
}

fn retry(delay: Duration, counts: bool) -> Settle {
    Settle::Retry {
        delay,
        counts,
        error: None,
    }
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without words")
}
