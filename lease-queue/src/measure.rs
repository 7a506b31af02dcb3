//! What a queue does as events and, behind the feature `metrics`, as metrics. Items and
//! groups are never labels: their number has no bound.

use std::time::Duration;

use lease_core::StoreError;

use crate::name::QueueName;
use crate::store::{Added, Depth, Settle, Settled};

#[cfg(feature = "metrics")]
use metrics::{counter, gauge, histogram};

/// The stable word for a settle.
pub(crate) fn kind(settle: &Settle) -> &'static str {
    match settle {
        Settle::Extend(_) => "extend",
        Settle::Complete => "complete",
        Settle::Retry { counts: true, .. } => "retry",
        Settle::Retry { counts: false, .. } => "abandon",
        Settle::Bury { .. } => "bury",
    }
}

pub(crate) fn put(queue: &QueueName, added: &[Added]) {
    let new = added.iter().filter(|a| **a == Added::Added).count();
    let duplicates = added.len() - new;
    tracing::debug!(target: "leases", queue = queue.as_str(), new, duplicates, "put");
    #[cfg(feature = "metrics")]
    for (outcome, count) in [("added", new), ("duplicate", duplicates)] {
        let queue = queue.as_str().to_owned();
        counter!("leases_queue_puts_total", "queue" => queue, "outcome" => outcome)
            .increment(count as u64);
    }
}

pub(crate) fn claimed(queue: &QueueName, attempt: u32, age: Duration) {
    tracing::debug!(target: "leases", queue = queue.as_str(), attempt, ?age, "claimed");
    #[cfg(feature = "metrics")]
    {
        let queue = || queue.as_str().to_owned();
        counter!("leases_queue_claims_total", "queue" => queue()).increment(1);
        histogram!("leases_queue_attempts", "queue" => queue()).record(f64::from(attempt));
        histogram!("leases_queue_age_seconds", "queue" => queue()).record(age.as_secs_f64());
    }
}

pub(crate) fn settled(queue: &QueueName, kind: &'static str, settled: Settled) {
    let outcome = match settled {
        Settled::Done => "done",
        Settled::Before => "before",
        Settled::Lost(_) => "lost",
    };
    tracing::debug!(target: "leases", queue = queue.as_str(), kind, outcome, "settled");
    #[cfg(feature = "metrics")]
    settles(queue, kind, outcome);
}

pub(crate) fn unsettled(queue: &QueueName, kind: &'static str, error: &StoreError) {
    tracing::warn!(target: "leases", queue = queue.as_str(), kind, %error, "not settled");
    #[cfg(feature = "metrics")]
    settles(queue, kind, error.kind().as_str());
}

#[cfg(feature = "metrics")]
fn settles(queue: &QueueName, kind: &'static str, outcome: &'static str) {
    let queue = queue.as_str().to_owned();
    counter!("leases_queue_settles_total", "queue" => queue, "kind" => kind, "outcome" => outcome)
        .increment(1);
}

pub(crate) fn depth(queue: &QueueName, depth: &Depth) {
    #[cfg(feature = "metrics")]
    {
        let name = || queue.as_str().to_owned();
        let states = [
            ("ready", depth.ready),
            ("delayed", depth.delayed),
            ("in_flight", depth.in_flight),
            ("dead", depth.dead),
        ];
        for (state, items) in states {
            gauge!("leases_queue_depth", "queue" => name(), "state" => state).set(items as f64);
        }
        let oldest = depth.oldest.unwrap_or_default().as_secs_f64();
        gauge!("leases_queue_oldest_seconds", "queue" => name()).set(oldest);
    }
    tracing::trace!(target: "leases", queue = queue.as_str(), ?depth, "depth");
}
