//! Claiming: attempts, and the wait for something to claim.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{Adoption, Owner, RefusedReason, StoreError, StoreErrorKind};

use crate::codec::Codec;
use crate::error::QueueError;
use crate::item::Claimed;
use crate::measure;
use crate::queue::leases::key_of;
use crate::queue::settling::{ATTEMPT_LIMIT, timed};
use crate::queue::waiting::{STORE_FAILED, USELESS_HINT};
use crate::queue::{Claim, Hold, Inner, Queue};
use crate::store::{Answer, ClaimRequest, Settle, What};

/// A request whose answer is not here: its owner is abandoned unless there is one.
struct UnderWay<'a> {
    inner: &'a Inner,
    owner: Owner,
    answered: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let key = self.inner.key.clone();
            self.inner.leases.abandon(key, self.owner);
        }
        // Last: a shutdown waits for what the lines above have sent.
        self.inner.asking.send_modify(|count| *count -= 1);
    }
}

/// What one request came to.
enum Asked<T> {
    Claims(Vec<Claim<T>>),
    /// After this something may be ready by itself.
    Nothing(Option<Duration>),
}

impl<T, C: Codec<T>> Queue<T, C> {
    /// Waits for an item. Those who wait on clones of this queue are served in the order
    /// in which they asked, and only the first of them asks the store; who comes while
    /// something is ready does not wait.
    ///
    /// # Errors
    /// [`QueueError::Store`] when the store refuses (it is waited for while it is only
    /// out of reach), [`QueueError::Refused`], [`QueueError::Closed`],
    /// [`QueueError::NoRuntime`].
    ///
    /// # Cancel safety
    /// Dropping the future gives the place in the line up. A request that was under way
    /// is abandoned at the store in the background: it takes no item, and no attempt
    /// counts. A future that is kept but not polled keeps its place, and those behind it
    /// waiting.
    pub async fn claim(&self) -> Result<Claim<T>, QueueError> {
        loop {
            if let Some(claim) = self.claim_batch(1).await?.pop() {
                return Ok(claim);
            }
        }
    }

    /// As [`claim`](Self::claim), for at most `limit`: none when nothing was ready in
    /// that time.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    ///
    /// # Cancel safety
    /// As [`claim`](Self::claim).
    pub async fn claim_within(&self, limit: Duration) -> Result<Option<Claim<T>>, QueueError> {
        let clock = &self.inner().clock;
        let until = clock.now().after(limit);
        if limit.is_zero() {
            return self.try_claim().await;
        }
        tokio::select! {
            biased;
            claim = self.claim() => claim.map(Some),
            () = clock.sleep_until(until) => Ok(None),
        }
    }

    /// Asks exactly once: none when nothing is ready.
    ///
    /// # Errors
    /// As [`claim`](Self::claim), and [`QueueError::Store`] when the store is out of
    /// reach. A request whose outcome is unknown is abandoned, not repeated.
    ///
    /// # Cancel safety
    /// As [`claim`](Self::claim).
    pub async fn try_claim(&self) -> Result<Option<Claim<T>>, QueueError> {
        match self.unless_closed(self.ask(1)).await? {
            Asked::Claims(mut claims) => Ok(claims.pop()),
            Asked::Nothing(_) => Ok(None),
        }
    }

    /// Waits for items: at least one, and up to `max` of those that are ready then, each
    /// with a claim and a lease of its own.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    ///
    /// # Cancel safety
    /// As [`claim`](Self::claim).
    pub async fn claim_batch(&self, max: usize) -> Result<Vec<Claim<T>>, QueueError> {
        self.unless_closed(self.until_claimed(max)).await
    }

    async fn unless_closed<R>(
        &self,
        work: impl Future<Output = Result<R, QueueError>>,
    ) -> Result<R, QueueError> {
        tokio::runtime::Handle::try_current().map_err(|_| QueueError::NoRuntime)?;
        tokio::select! {
            biased;
            () = self.inner().closing.cancelled() => Err(QueueError::Closed),
            done = work => done,
        }
    }

    async fn until_claimed(&self, max: usize) -> Result<Vec<Claim<T>>, QueueError> {
        let inner = self.inner();
        // Most of the time something is ready: nobody waits for that in line.
        match self.ask(max).await {
            Ok(Asked::Claims(claims)) if !claims.is_empty() => return Ok(claims),
            Err(QueueError::Store(error)) if error.is_transient() => {}
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let mut turn = inner.turn.lock().await;
        turn.take_over();
        let mut failed = STORE_FAILED;
        let mut useless = Duration::ZERO;
        loop {
            let next = match self.ask(max).await {
                Ok(Asked::Claims(claims)) if !claims.is_empty() => return Ok(claims),
                // What was claimed could not be handed out: on to the next.
                Ok(Asked::Claims(_)) => continue,
                Ok(Asked::Nothing(next)) => next,
                Err(QueueError::Store(error)) if error.is_transient() => {
                    failed = inner.wait_out(failed).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            failed = STORE_FAILED;
            if !turn.stands() {
                // One that takes its time, or cannot be had, is done without: looks go on.
                tokio::select! {
                    biased;
                    made = inner.subscribed(&mut turn) => match made {
                        // Before sleeping: what came before it gave no hint.
                        Ok(()) => continue,
                        Err(error) if error.is_transient() => {}
                        Err(error) => return Err(error.into()),
                    },
                    () = inner.sleep_without_hints(next) => continue,
                }
            }
            useless = match inner.sleep(&mut turn, next, useless).await {
                true => (useless * 2).clamp(USELESS_HINT, 32 * USELESS_HINT),
                false => Duration::ZERO,
            };
        }
    }

    /// Asks the store once, and makes claims of what it gives.
    async fn ask(&self, max: usize) -> Result<Asked<T>, QueueError> {
        let inner = self.inner();
        let request = ClaimRequest {
            owner: Owner::random()?,
            ttl: inner.ttl,
            label: inner.label.clone(),
            what: What::Next { max },
        };
        inner.asking.send_modify(|count| *count += 1);
        let mut under_way = UnderWay {
            inner,
            owner: request.owner,
            answered: false,
        };
        // Before the request is sent: the store cannot count from earlier.
        let sent = inner.clock.now();
        // Later than that a claim would be worth nothing.
        let until = sent.after(inner.ttl.get().min(ATTEMPT_LIMIT));
        let claim = inner.store.claim(&inner.name, &request);
        let answer = timed(&*inner.clock, until, claim).await;
        inner.told.of(&answer);
        // What a store refuses after it has claimed something is given back, too.
        under_way.answered = match &answer {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(
                    target: "leases",
                    queue = %inner.name, %error, "a request for items failed"
                );
                let kind = error.kind();
                matches!(
                    kind,
                    StoreErrorKind::Unavailable | StoreErrorKind::InvalidInput
                )
            }
        };
        let items = match answer? {
            Answer::Claimed { items, .. } => items,
            Answer::Nothing { next } => return Ok(Asked::Nothing(next)),
            Answer::Refused(RefusedReason::Quarantine { remaining }) => {
                return Ok(Asked::Nothing(Some(remaining)));
            }
            Answer::Refused(reason) => return Err(QueueError::Refused(reason)),
            Answer::Held(_) => {
                let words = "the store answers for a key where none was asked for";
                return Err(StoreError::refusing(words).into());
            }
        };
        let mut claims = Vec::with_capacity(items.len());
        for claimed in items {
            match inner.hold(&claimed, sent) {
                Ok(hold) => claims.extend(handed_out::<T, C>(hold, claimed)),
                Err(error) => {
                    // None of them is kept.
                    under_way.answered = false;
                    return Err(error);
                }
            }
        }
        Ok(Asked::Claims(claims))
    }
}

/// A claim to work on. What is not one is settled in the background: an item that its
/// workers never ended, and a payload that cannot be read.
fn handed_out<T, C: Codec<T>>(hold: Hold, claimed: Claimed) -> Option<Claim<T>> {
    if hold.lease.check().is_err() {
        // It came too late; it may still be live at the store, and is given back.
        return None;
    }
    let most = hold.inner.max_attempts;
    if let Some(most) = most.filter(|most| claimed.attempt > *most) {
        let reason = format!("{most} attempts were begun, and the last was never ended");
        tracing::warn!(target: "leases", item = %claimed.claim.item, attempts = most, "buried");
        hold.finally(Settle::Bury { reason });
        return None;
    }
    match C::decode(claimed.body) {
        Ok(payload) => Some(Claim::new(payload, Arc::new(hold))),
        Err(error) => {
            let why = format!("the payload cannot be read: {error}");
            tracing::warn!(target: "leases", item = %claimed.claim.item, "{why}");
            hold.finally(hold.failed(&why));
            None
        }
    }
}

impl Inner {
    /// Makes a lease of a claim.
    fn hold(
        self: &Arc<Self>,
        claimed: &Claimed,
        sent: lease_core::Moment,
    ) -> Result<Hold, QueueError> {
        let claim = &claimed.claim;
        let key = key_of(&claim.lane)?;
        let entry = self.claims.register(&key, claim.clone(), self.ttl);
        let mut adoption = Adoption::new(key, claim.owner, claim.token, self.ttl, sent);
        adoption = adoption.label(self.label.clone());
        if let Some(limit) = self.max_hold {
            adoption = adoption.max_hold(limit);
        }
        if let Some(limit) = self.progress_within {
            adoption = adoption.progress_within(limit);
        }
        let lease = self.leases.adopt(adoption)?;
        measure::claimed(&self.name, claimed.attempt, claimed.age);
        Ok(Hold {
            lease,
            entry,
            inner: Arc::clone(self),
            attempt: claimed.attempt,
            age: claimed.age,
        })
    }
}
