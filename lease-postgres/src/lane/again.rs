//! What is done after an answer: asking again, telling others, tidying up.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lease_core::{StoreError, Ttl};
use tokio::time::Instant;

use super::Lane;

const FIRST_PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// A row that cannot be had for this long is not merely contended.
const KEPT_AFTER: Duration = Duration::from_millis(250);
/// Between two looks for tombstones whose time is over.
const PURGE_EVERY_S: u64 = 10;

/// Asks again while a row is locked or changes under the hands.
#[derive(Debug)]
pub struct Again {
    begun: Instant,
    limit: Duration,
    /// None before the first pause: a row that has just changed can be asked for
    /// at once.
    pause: Option<Duration>,
}

impl Again {
    /// For so long at most.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self {
            begun: Instant::now(),
            limit,
            pause: None,
        }
    }

    /// Whether an acquisition for this TTL has asked for so long that somebody
    /// must be keeping the row, and the acquirer should know.
    pub(super) fn is_long_for(&self, ttl: Option<Ttl>) -> bool {
        let limit = |ttl: Ttl| KEPT_AFTER.min(self.limit / 2).min(ttl.get() / 4);
        ttl.is_some_and(|ttl| self.begun.elapsed() >= limit(ttl))
    }

    /// Waits a little.
    ///
    /// # Errors
    /// `Unavailable` when the time is over.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn pause(&mut self, what: &(dyn fmt::Debug + Sync)) -> Result<(), StoreError> {
        if self.begun.elapsed() >= self.limit {
            return Err(StoreError::unavailable(format!(
                "somebody's transaction kept the row of {what:?} locked for {:?}; look for a long \
                 transaction in pg_stat_activity",
                self.limit
            )));
        }
        match self.pause {
            None => {
                self.pause = Some(FIRST_PAUSE);
                tokio::task::yield_now().await;
            }
            Some(pause) => {
                self.pause = Some((pause * 2).min(LONGEST_PAUSE));
                // Not in step with others.
                tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..=1.0))).await;
            }
        }
        Ok(())
    }
}

impl Lane {
    /// Whether it is this caller's turn to look through the tombstones.
    pub(super) fn is_time_to_purge(&self) -> bool {
        let now = self.beginning.elapsed().as_secs() + PURGE_EVERY_S;
        let last = self.purged.load(Ordering::Relaxed);
        now >= last + PURGE_EVERY_S
            && self
                .purged
                .compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// Nobody waits for this. A hint that is lost costs a wait, and tombstones go
/// the next time.
pub(super) async fn follow_up(lane: Arc<Lane>, freed: Vec<String>, purge: bool) {
    if !freed.is_empty()
        && let Err(failure) = lane.exchange().notify(freed).await
    {
        tracing::debug!(target: "leases", ?failure, "those who wait were not told");
    }
    if purge && let Err(failure) = lane.exchange().purge().await {
        tracing::debug!(target: "leases", ?failure, "old tombstones were not deleted");
    }
}
