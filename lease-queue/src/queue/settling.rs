//! Settling a claim: asked again until there is an answer, within limits.

use std::future::Future;
use std::time::Duration;

use lease_core::{Clock, Lost, LostReason, Moment, StoreError};

use crate::keyed::unanswered;
use crate::measure;
use crate::queue::Hold;
use crate::queue::leases::Entry;
use crate::store::{Settle, Settled};

/// The longest that one request may take before it counts as unanswered.
pub(super) const ATTEMPT_LIMIT: Duration = Duration::from_secs(10);
/// Between two tries; twice as long each time.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why a claim is not settled.
#[derive(Debug)]
pub(crate) enum Unsettled {
    Lost(Lost),
    Store(StoreError),
}

/// One request: silence until `until` becomes an unknown outcome.
pub(super) async fn timed<T>(
    clock: &dyn Clock,
    until: Moment,
    request: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    tokio::select! {
        biased;
        answer = request => answer,
        () = clock.sleep_until(until) => Err(StoreError::unknown_outcome(
            "no answer in time; check that the store is reachable and not overloaded",
        )),
    }
}

/// While somebody waits for a settle. Dropped before its end, the lease's release goes on
/// with it.
struct Waiting<'a>(&'a Entry);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Waiting<'_> {
    fn answered(&self, settled: Settled) {
        self.0.end(Some(settled));
    }

    fn given_back(&self) {
        self.0.end(None);
    }
}

impl Hold {
    fn ended(&self, settled: Settled) -> Result<(), Unsettled> {
        match settled {
            Settled::Done | Settled::Before => Ok(()),
            Settled::Lost(cause) => Err(Unsettled::Lost(Lost::new(
                self.lease.key().clone(),
                self.lease.token(),
                LostReason::Store(cause),
            ))),
        }
    }

    /// Settles the claim. What fails without a refusal is asked again until the TTL is
    /// over, or ten seconds; the lease is renewed meanwhile.
    pub(crate) async fn settle(&self, settle: Settle) -> Result<(), Unsettled> {
        let inner = &self.inner;
        let clock = &*inner.clock;
        let kind = measure::kind(&settle);
        if let Err(ended) = self.entry.begin(settle.clone()) {
            return self.ended(ended);
        }
        let waiting = Waiting(&self.entry);
        let batch = [(self.claim().clone(), settle.clone())];
        let over = clock.now().after(inner.ttl.get().min(ATTEMPT_LIMIT));
        // A try that hangs must leave time for another.
        let patience = (inner.ttl.get() / 3).min(ATTEMPT_LIMIT / 2);
        let mut pause = PAUSE;
        loop {
            let until = clock.now().after(patience);
            let request = async {
                let answers = inner.store.settle(&inner.name, &batch).await;
                answers.into_iter().next().ok_or_else(unanswered)?
            };
            let error = match timed(clock, until, request).await {
                Ok(settled) => {
                    let settled = self.entry.meant(&settle, settled);
                    waiting.answered(settled);
                    measure::settled(&inner.name, kind, settled);
                    return self.ended(settled);
                }
                Err(error) => error,
            };
            let next = clock.now().after(pause);
            if !error.is_transient() || next >= over {
                waiting.given_back();
                measure::unsettled(&inner.name, kind, &error);
                return Err(Unsettled::Store(error));
            }
            clock.sleep_until(next).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
