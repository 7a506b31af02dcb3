//! What the loop sends to the store, each in a task of its own: a backend that
//! hangs, blocks or panics must not hold up anybody's deadline.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Semaphore;

use crate::backend::{LostCause, ReleaseOutcome, RenewOutcome, RenewRequest, TOMBSTONE_RETENTION};
use crate::client::Parts;
use crate::clock::{Clock, Moment};
use crate::error::{Error, StoreError, StoreErrorKind};
use crate::key::Key;
use crate::lease::{Held, Released};
use crate::lost::LostReason;
use crate::observe::EventKind;
use crate::owner::Owner;
use crate::retry::{ATTEMPT_LIMIT, Backoff, RELEASE_PATIENCE};

/// A release or an abandonment waits at least this long for its answer.
const CLEAN_UP_PATIENCE: Duration = RELEASE_PATIENCE;

/// How many abandonments one client has under way at once.
pub(super) const ABANDONS_AT_ONCE: usize = 32;

/// Runs one request: a panic (in the call itself, or in its future) and a
/// silence of longer than `until` both become an unknown outcome.
pub(crate) async fn attempt<T, F>(
    clock: &dyn Clock,
    until: Moment,
    request: impl FnOnce() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let request = async { request().await };
    tokio::select! {
        biased;
        answer = AssertUnwindSafe(request).catch_unwind() => answer.unwrap_or_else(|_| {
            Err(StoreError::unknown_outcome(
                "the store's driver panicked; please report it with the panic's message",
            ))
        }),
        () = clock.sleep_until(until) => Err(StoreError::unknown_outcome(
            "no answer in time; check that the store is reachable and not overloaded",
        )),
    }
}

/// Renews a batch; one outcome for each request, whatever the backend gave.
pub(super) async fn renew(
    parts: Arc<Parts>,
    requests: Vec<RenewRequest>,
    until: Moment,
) -> Vec<Result<RenewOutcome, StoreError>> {
    let (backend, clock) = (&parts.backend, &*parts.clock);
    if let [request] = &requests[..] {
        return vec![attempt(clock, until, || backend.renew(request)).await];
    }
    let all = async || Ok(backend.renew_many(&requests).await);
    match attempt(clock, until, all).await {
        Ok(mut outcomes) => {
            outcomes.resize_with(requests.len(), || {
                Err(StoreError::unknown_outcome(
                    "the store's driver gave no outcome for this renewal",
                ))
            });
            outcomes
        }
        Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
    }
}

/// Whether to abandon once more: nobody waits for that, and an orphan blocks
/// its key. A failover's read-only replica, or a full disk, may pass.
fn may_pass(error: &StoreError) -> bool {
    error.kind() != StoreErrorKind::InvalidInput
}

/// Releases a grant: again and again until it cannot be live any more, or the
/// store refuses.
pub(super) async fn release(parts: &Parts, held: &Held) -> Result<Released, Error> {
    let ended = match held.lost() {
        // The store's own word: there is nothing to free.
        Some(lost) if matches!(lost.reason, LostReason::Store(_)) => Err(lost.clone().into()),
        _ => released(parts, held).await,
    };
    held.hold_is_over();
    ended
}

/// A release until it has ended. One that its runtime's end cuts short, begun or
/// not, is told of: nothing of a lease's life may be silent.
pub(super) struct UnderWay(Option<Arc<Held>>);

impl UnderWay {
    pub(super) fn new(held: Arc<Held>) -> Self {
        Self(Some(held))
    }

    pub(super) fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some(held) = &self.0 else {
            return;
        };
        held.hold_is_over();
        held.tell(EventKind::ReleaseFailed {
            error: StoreError::unknown_outcome(
                "its runtime ended during the release; the key is free at its expiry",
            ),
        });
    }
}

/// What became of a grant that is not live: a renewal changes nothing and says
/// why.
async fn why_not_held(parts: &Parts, held: &Held) -> LostCause {
    let request = held.renewal();
    let until = parts.clock.now().after(CLEAN_UP_PATIENCE);
    match attempt(&*parts.clock, until, || parts.backend.renew(&request)).await {
        Ok(RenewOutcome::Lost(cause)) => cause,
        _ => LostCause::Unknown,
    }
}

/// A release was answered.
fn answered(parts: &Parts, held: &Held, outcome: ReleaseOutcome) {
    let held_for = parts.clock.now().since(held.granted);
    held.tell(EventKind::Released { outcome, held_for });
    parts.lines.released(held);
}

/// A grant was released by other means, which is told of as if it had been by us.
pub(super) fn ended(parts: &Parts, held: &Held) {
    let by_store = held
        .lost()
        .is_some_and(|lost| matches!(lost.reason, LostReason::Store(_)));
    if !by_store {
        answered(parts, held, ReleaseOutcome::Released);
    }
    held.hold_is_over();
}

async fn released(parts: &Parts, held: &Held) -> Result<Released, Error> {
    let clock = &*parts.clock;
    let mut backoff = Backoff::renewal(held.ttl.get());
    let patience = (held.ttl.get() / 6).clamp(CLEAN_UP_PATIENCE, ATTEMPT_LIMIT);
    // Not the deadline: a renewal whose reply was lost may have made the grant
    // last longer than its holder believed, but not longer than this.
    let over = held.deadline().max(clock.now().after(held.ttl.get()));
    let mut unanswered = false;
    loop {
        let until = clock.now().after(patience);
        let request = || parts.backend.release(&held.key, held.owner, held.token);
        let error = match attempt(clock, until, request).await {
            Ok(outcome) => {
                answered(parts, held, outcome);
                return match outcome {
                    ReleaseOutcome::Released => Ok(Released::Freed),
                    ReleaseOutcome::NotHeld if unanswered => Ok(Released::Gone),
                    ReleaseOutcome::NotHeld => {
                        let cause = why_not_held(parts, held).await;
                        Err(held.lose(LostReason::Store(cause)).clone().into())
                    }
                };
            }
            Err(error) => error,
        };
        unanswered |= error.is_unknown_outcome();
        // Who waits for a release wants to hear of a refusal at once; the key
        // is free at its expiry anyway.
        if !error.is_transient() || clock.now() >= over {
            held.tell(EventKind::ReleaseFailed {
                error: error.clone(),
            });
            return Err(error.into());
        }
        held.tell(EventKind::ReleaseRetried { error });
        let pause = clock.now().after(backoff.next(&parts.chance));
        clock.sleep_until(pause.min(over)).await;
    }
}

/// Abandons an owner: again and again for as long as a request of its can
/// still be under way.
///
/// Not more than a few ask at once: an outage in which thousands gave up must
/// not end in a storm. A turn is for one attempt, so that those which cannot
/// succeed do not keep the others waiting.
pub(super) async fn abandon(parts: Arc<Parts>, turns: Arc<Semaphore>, key: Key, owner: Owner) {
    let clock = &*parts.clock;
    let give_up = clock.now().after(TOMBSTONE_RETENTION);
    let mut backoff = Backoff::store();
    loop {
        let answer = {
            // The semaphore is never closed.
            let _turn = turns.acquire().await;
            let until = clock.now().after(ATTEMPT_LIMIT);
            attempt(clock, until, || parts.backend.abandon(&key, owner)).await
        };
        let Err(error) = answer else {
            parts
                .observers
                .tell(&key, owner, None, EventKind::Abandoned);
            parts.lines.freed(&key);
            return;
        };
        if !may_pass(&error) || clock.now() >= give_up {
            parts
                .observers
                .tell(&key, owner, None, EventKind::AbandonFailed { error });
            return;
        }
        let pause = backoff.next(&parts.chance);
        clock.sleep_until(clock.now().after(pause)).await;
    }
}
