//! The waiting loop: the local queue, attempts, sleep, and when it is over.

use std::time::Duration;

use super::attempt::{Requests, Step, attempt};
use super::wake::HAIR;
use super::{Attempt, Terms};
use crate::backend::{Holder, RefusedReason};
use crate::clock::Moment;
use crate::error::{CancelReason, Error, StoreError};
use crate::lease::{Lease, Word};
use crate::queue::Place;
use crate::retry::{Backoff, acquire_limit};

/// A remaining time below this is looked after at once, but not for ever.
const HARDLY_ANY: Duration = Duration::from_millis(10);

/// Exactly one attempt.
pub(super) async fn attempt_once(terms: &Terms) -> Result<Attempt, Error> {
    let inner = &terms.inner;
    inner.keeper.ensure()?;
    if let Some(why) = cancelled(terms) {
        return Err(cancelled_error(terms, why));
    }
    let mut requests = Requests::new(terms)?;
    let limit = inner.clock.now().after(acquire_limit(inner, terms.ttl));
    let step = tokio::select! {
        biased;
        why = cancellation(terms) => return Err(cancelled_error(terms, why)),
        // It does not wait: no store keeps a place for it.
        step = attempt(terms, &mut requests, None, limit) => step,
    };
    match step {
        Step::Leased(lease) => Ok(Attempt::Acquired(lease)),
        Step::Held(holder) => Ok(Attempt::Held(holder)),
        Step::Refused(reason) => Err(refused(terms, reason)),
        Step::Failed(error) => Err(error.into()),
        Step::TooLate => Err(too_late().into()),
    }
}

/// Waits for the key.
pub(super) async fn acquire(terms: &Terms) -> Result<Lease, Error> {
    let inner = &terms.inner;
    if inner.clock.now() >= terms.wait_until {
        return match attempt_once(terms).await? {
            Attempt::Acquired(lease) => Ok(lease),
            Attempt::Held(holder) => Err(contended(terms, Some(holder), None)),
        };
    }
    inner.keeper.ensure()?;
    let mut requests = Requests::new(terms)?;
    let place = inner.lines.join(&terms.key);
    let mut waiting = Waiting::new();
    tokio::select! {
        biased;
        why = cancellation(terms) => Err(cancelled_error(terms, why)),
        leased = waiting.until_leased(terms, &mut requests, &place) => leased,
    }
}

/// What a waiter knows so far.
struct Waiting {
    /// Whom the store, or a lease of this client, named last.
    holder: Option<Holder>,
    /// Nobody holds it, and yet it is not granted.
    quarantine: Option<RefusedReason>,
    failed: Option<StoreError>,
    /// Whether the store's latest word on the key is that it failed.
    failed_last: bool,
    answered: bool,
    /// When it is over unless the store has answered something by then.
    first_answer_by: Option<Moment>,
    /// Where waiters are served in order: until when the store has heard of us.
    in_line_until: Option<Moment>,
    store: Backoff,
    /// Between looks at a holder that has hardly any time left.
    hardly: Backoff,
}

impl Waiting {
    fn new() -> Self {
        Self {
            holder: None,
            quarantine: None,
            failed: None,
            failed_last: false,
            answered: false,
            first_answer_by: None,
            in_line_until: None,
            store: Backoff::store(),
            hardly: Backoff::hints(),
        }
    }

    async fn until_leased<'a>(
        &mut self,
        terms: &'a Terms,
        requests: &mut Requests<'a>,
        place: &Place,
    ) -> Result<Lease, Error> {
        let inner = &terms.inner;
        let clock = &*inner.clock;
        let mut wake_ups = tokio::select! {
            biased;
            turn = place.turn() => turn,
            () = clock.sleep_until(terms.wait_until) => {
                return Err(contended(terms, None, None));
            }
        };
        wake_ups.take_over();
        let mut woken = None;
        loop {
            // Our own client holds it: the store could say nothing new, unless
            // it has just hinted that it can, or has to hear that we wait.
            let own = place.word(clock.now()).filter(|_| !wake_ups.heard());
            if let Some(word) = own.filter(|word| !self.must_join(word, terms)) {
                let end = self.end(terms);
                let look = self.in_line_until.filter(|until| clock.now() < *until);
                let until = look.map_or(end, |look| look.min(end));
                woken = wake_ups.beside(&word, terms, place, until).await;
                self.is_held_by(word.holder);
                if clock.now() >= end {
                    return Err(self.time_is_up(terms));
                }
                continue;
            }
            self.asks(terms);
            let end = self.end(terms);
            let limit = acquire_limit(inner, terms.ttl);
            let limit = clock.now().after(limit).min(end);
            wake_ups.looks();
            let waits = inner.look_again();
            let step = attempt(terms, requests, Some(waits), limit).await;
            if !matches!(step, Step::Failed(_) | Step::TooLate) {
                self.answered = true;
                self.in_line_until = inner.keeps_order().then(|| clock.now().after(waits));
                wake_ups.looked();
            }
            let now = clock.now();
            let wake = match step {
                Step::Leased(lease) => {
                    wake_ups.leased(woken);
                    return Ok(lease);
                }
                Step::Held(holder) => {
                    self.store.reset();
                    let wake = self.look_after(holder.remaining, terms);
                    self.is_held_by(holder);
                    // Subscribe, then try once more before sleeping: a release
                    // in between must not be slept through.
                    if now < end && wake_ups.subscribe(terms, place, wake.min(end)).await {
                        continue;
                    }
                    wake
                }
                Step::Refused(RefusedReason::InLine { remaining, .. }) => {
                    self.store.reset();
                    (self.holder, self.quarantine) = (None, None);
                    self.failed_last = false;
                    let wake = self.look_after(remaining, terms);
                    // As above: whoever is ahead may give up meanwhile.
                    if now < end && wake_ups.subscribe(terms, place, wake.min(end)).await {
                        continue;
                    }
                    wake
                }
                Step::Refused(RefusedReason::Quarantine { remaining }) => {
                    self.store.reset();
                    self.holder = None;
                    self.quarantine = Some(RefusedReason::Quarantine { remaining });
                    self.failed_last = false;
                    self.look_after(remaining, terms)
                }
                Step::Refused(RefusedReason::Abandoned | RefusedReason::Revoked)
                | Step::TooLate => {
                    if matches!(step, Step::TooLate) {
                        self.has_failed(too_late());
                    }
                    // This owner is burnt; the acquisition goes on with a new
                    // one. Dropping the old one abandons it.
                    requests.replaced = true;
                    *requests = Requests::new(terms)?;
                    self.in_line_until = None;
                    now.after(self.store.next(&inner.chance))
                }
                Step::Refused(reason) => return Err(refused(terms, reason)),
                Step::Failed(error) if error.is_transient() => {
                    wake_ups.unsubscribe();
                    // Of an attempt that the end of the wait cut short nothing is
                    // known; what failed before it says more.
                    let cut = limit == end && now >= end && error.is_unknown_outcome();
                    if !(cut && self.failed_last) {
                        self.has_failed(error);
                    }
                    now.after(self.store.next(&inner.chance))
                }
                Step::Failed(error) => return Err(error.into()),
            };
            let end = self.end(terms);
            if clock.now() >= end {
                return Err(self.time_is_up(terms));
            }
            woken = Some(wake_ups.sleep(terms, place, wake.min(end)).await);
            if clock.now() >= end {
                return Err(self.time_is_up(terms));
            }
        }
    }

    /// Whether a lease of our own client is no reason not to ask: waiters of others
    /// would get ahead of us. Not for one that is about to go, or has just come.
    fn must_join(&self, word: &Word, terms: &Terms) -> bool {
        let now = terms.inner.clock.now();
        terms.inner.keeps_order()
            && !word.releasing
            && now >= word.echo_until
            && self.in_line_until.is_none_or(|until| now >= until)
    }

    fn is_held_by(&mut self, holder: Holder) {
        (self.holder, self.quarantine) = (Some(holder), None);
        self.failed_last = false;
    }

    /// That an owner is burnt afterwards, by the failure itself, takes nothing
    /// of this back.
    fn has_failed(&mut self, error: StoreError) {
        self.failed = Some(error);
        self.failed_last = true;
    }

    /// The time in the local queue is not the store's silence.
    fn asks(&mut self, terms: &Terms) {
        let now = terms.inner.clock.now();
        let limit = terms.first_answer_within;
        self.first_answer_by = self
            .first_answer_by
            .or_else(|| limit.map(|limit| now.after(limit)));
    }

    /// When the timer wakes a waiter whom the store told how long it takes.
    fn look_after(&mut self, remaining: Duration, terms: &Terms) -> Moment {
        // A hair later than the store's own instant of expiry.
        let mut wait = remaining.min(terms.inner.look_again()) + HAIR;
        if remaining < HARDLY_ANY {
            // A store may go on saying so: its clock may be coarse.
            wait = wait.max(self.hardly.next(&terms.inner.chance));
        } else {
            self.hardly.reset();
        }
        terms.inner.clock.now().after(wait)
    }

    /// When the wait is over: earlier while the store has never answered.
    fn end(&self, terms: &Terms) -> Moment {
        match self.first_answer_by {
            Some(by) if !self.answered => by.min(terms.wait_until),
            _ => terms.wait_until,
        }
    }

    fn time_is_up(&mut self, terms: &Terms) -> Error {
        match (self.failed.take(), self.quarantine.take()) {
            // No holder was in the way: the store's failure was.
            (Some(error), _) if self.failed_last && self.holder.is_none() => error.into(),
            // Nobody holds it, and the caller should know.
            (_, Some(reason)) => refused(terms, reason),
            (failed, None) => contended(terms, self.holder.take(), failed),
        }
    }
}

fn too_late() -> StoreError {
    StoreError::unavailable(
        "its grant arrived after the grant's own deadline; use a longer TTL or a faster store",
    )
}

fn cancelled(terms: &Terms) -> Option<CancelReason> {
    if terms.inner.closing.is_cancelled() {
        Some(CancelReason::Shutdown)
    } else if terms.cancel.is_cancelled() {
        Some(CancelReason::Token)
    } else {
        None
    }
}

async fn cancellation(terms: &Terms) -> CancelReason {
    tokio::select! {
        biased;
        () = terms.inner.closing.cancelled() => CancelReason::Shutdown,
        () = terms.cancel.cancelled() => CancelReason::Token,
    }
}

fn cancelled_error(terms: &Terms, why: CancelReason) -> Error {
    Error::Cancelled {
        key: terms.key.clone(),
        why,
    }
}

fn refused(terms: &Terms, reason: RefusedReason) -> Error {
    Error::Refused {
        key: terms.key.clone(),
        reason,
    }
}

fn contended(terms: &Terms, holder: Option<Holder>, store: Option<StoreError>) -> Error {
    Error::Contended {
        key: terms.key.clone(),
        waited: terms.inner.clock.now().since(terms.start),
        holder,
        store,
    }
}
