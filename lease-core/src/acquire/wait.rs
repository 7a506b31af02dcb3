//! The waiting loop: the local queue, attempts, wake-ups, timers, and what is
//! left behind when it ends early.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use super::{Attempt, Terms};
use crate::backend::{AcquireOutcome, AcquireRequest, Granted, Holder, RefusedReason};
use crate::client::Inner;
use crate::clock::Moment;
use crate::error::{CancelReason, Error, StoreError};
use crate::key::Key;
use crate::lease::{Held, Lease, Terms as LeaseTerms};
use crate::observe::EventKind;
use crate::owner::Owner;
use crate::queue::Place;
use crate::retry::{Backoff, LOOK_AGAIN, acquire_limit};
use crate::token::TokenRule;

/// Hints further apart than this are taken one by one.
const HINTS_APART: Duration = Duration::from_millis(50);

/// One owner's requests, and the duty to abandon it.
///
/// An acquisition that gives up must be abandoned unless it had exactly one
/// attempt and that was answered; dropping this sees to it, wherever the
/// future that owns it was dropped.
struct Requests<'a> {
    inner: &'a Inner,
    key: &'a Key,
    owner: Owner,
    /// When the caller asked.
    start: Moment,
    sent: u32,
    answered: u32,
    granted: bool,
    /// The acquisition goes on with another owner.
    replaced: bool,
}

impl<'a> Requests<'a> {
    fn new(terms: &'a Terms) -> Result<Self, Error> {
        Ok(Self {
            inner: &terms.inner,
            key: &terms.key,
            owner: terms.inner.chance.owner()?,
            start: terms.start,
            sent: 0,
            answered: 0,
            granted: false,
            replaced: false,
        })
    }

    fn tell(&self, kind: EventKind) {
        self.inner.observers.tell(self.key, self.owner, None, kind);
    }
}

impl Drop for Requests<'_> {
    fn drop(&mut self) {
        if self.granted {
            return;
        }
        if !self.replaced {
            self.tell(EventKind::GaveUp {
                waited: self.inner.clock.now().since(self.start),
                attempts: self.sent,
            });
        }
        let once_and_answered = self.sent == 1 && self.answered == 1;
        if self.sent > 0 && !once_and_answered && self.inner.rules.abandon_on_give_up {
            self.inner.keeper.abandon(self.key.clone(), self.owner);
        }
    }
}

/// What one attempt came to.
enum Step {
    Leased(Lease),
    Held(Holder),
    Refused(RefusedReason),
    Failed(StoreError),
    /// Granted, but later than the grant's own deadline.
    TooLate,
}

/// Sends one request and waits for its answer until `limit`.
async fn attempt(terms: &Terms, requests: &mut Requests<'_>, limit: Moment) -> Step {
    let inner = &terms.inner;
    let (clock, rules) = (&*inner.clock, inner.rules);
    let request = AcquireRequest {
        key: terms.key.clone(),
        owner: requests.owner,
        ttl: terms.ttl,
        label: terms.label.clone(),
        rule: TokenRule::NEXT,
    };
    requests.sent += 1;
    let number = requests.sent;
    requests.tell(EventKind::Attempt { number });
    // Before the request is sent: the store cannot count from earlier.
    let sent = clock.now();
    let answer = crate::renewal::attempt(clock, limit, inner.backend.acquire(&request)).await;
    let now = clock.now();
    let took = now.since(sent);
    let outcome = match answer {
        Ok(outcome) => outcome,
        Err(error) => {
            // A failure that certainly had no effect is an answer.
            requests.answered += u32::from(!error.is_unknown_outcome());
            let event = error.clone();
            requests.tell(EventKind::AttemptFailed { error: event, took });
            return Step::Failed(error);
        }
    };
    requests.answered += 1;
    match outcome {
        AcquireOutcome::Granted(granted) => {
            let from = if rules.count_from_send { sent } else { now };
            let valid = if rules.drift_allowance {
                inner.drift.validity(terms.ttl)
            } else {
                terms.ttl.get()
            };
            let deadline = from.after(valid);
            if now >= deadline && rules.late_grant_dropped {
                requests.tell(EventKind::GrantedTooLate { took });
                // It may be live at the store: it must be abandoned, even
                // after one attempt that was answered.
                requests.answered = 0;
                return Step::TooLate;
            }
            Step::Leased(hand_out(terms, requests, granted, sent, deadline, took))
        }
        AcquireOutcome::Held(holder) => {
            let seen = holder.clone();
            requests.tell(EventKind::Contended { holder: seen, took });
            Step::Held(holder)
        }
        AcquireOutcome::Refused(reason) => {
            let seen = reason.clone();
            requests.tell(EventKind::Refused { reason: seen, took });
            Step::Refused(reason)
        }
    }
}

fn hand_out(
    terms: &Terms,
    requests: &mut Requests<'_>,
    granted: Granted,
    sent: Moment,
    deadline: Moment,
    took: Duration,
) -> Lease {
    let inner = &terms.inner;
    requests.granted = true;
    let held = Arc::new(Held::new(
        LeaseTerms {
            key: terms.key.clone(),
            owner: requests.owner,
            token: granted.token,
            ttl: terms.ttl,
            sent,
            deadline,
            unanswered: requests.answered < requests.sent,
            max_hold: terms.max_hold,
            progress_within: terms.progress_within,
        },
        inner,
    ));
    let now = inner.clock.now();
    held.tell(EventKind::Granted {
        waited: now.since(terms.start),
        attempts: requests.sent,
        took,
        valid_for: deadline.since(now),
        taken_over: granted.taken_over,
    });
    inner.keeper.keep(&held);
    Lease::new(held, Arc::clone(inner))
}

/// Exactly one attempt.
pub(super) async fn attempt_once(terms: &Terms) -> Result<Attempt, Error> {
    let inner = &terms.inner;
    inner.keeper.ensure()?;
    if let Some(why) = cancelled(terms) {
        return Err(cancelled_error(terms, why));
    }
    let mut requests = Requests::new(terms)?;
    let limit = inner
        .clock
        .now()
        .after(acquire_limit(terms.ttl, inner.drift));
    let step = tokio::select! {
        biased;
        why = cancellation(terms) => return Err(cancelled_error(terms, why)),
        step = attempt(terms, &mut requests, limit) => step,
    };
    match step {
        Step::Leased(lease) => Ok(Attempt::Acquired(lease)),
        Step::Held(holder) => Ok(Attempt::Held(holder)),
        Step::Refused(reason) => Err(refused(terms, reason)),
        Step::Failed(error) => Err(error.into()),
        Step::TooLate => Err(StoreError::unavailable(
            "its grant arrived after the grant's own deadline; use a longer TTL or a faster store",
        )
        .into()),
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
    holder: Option<Holder>,
    failed: Option<StoreError>,
    answered: bool,
    /// When it is over unless the store has answered something by then.
    first_answer_by: Option<Moment>,
    hinted: Moment,
    hints: Option<BoxStream<'static, ()>>,
    store: Backoff,
    hint_pause: Backoff,
}

impl Waiting {
    fn new() -> Self {
        Self {
            holder: None,
            failed: None,
            answered: false,
            first_answer_by: None,
            hinted: Moment::START,
            hints: None,
            store: Backoff::store(),
            hint_pause: Backoff::hints(),
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
        let _turn = tokio::select! {
            biased;
            turn = place.turn() => turn,
            () = clock.sleep_until(terms.wait_until) => {
                return Err(contended(terms, None, None));
            }
        };
        // The time in the local queue is not the store's silence.
        let limit = terms.first_answer_within;
        self.first_answer_by = limit.map(|limit| clock.now().after(limit));
        loop {
            let end = self.end(terms);
            let limit = acquire_limit(terms.ttl, inner.drift);
            let limit = clock.now().after(limit).min(end);
            let step = attempt(terms, requests, limit).await;
            self.answered |= !matches!(step, Step::Failed(_));
            let now = clock.now();
            let wake = match step {
                Step::Leased(lease) => return Ok(lease),
                Step::Held(holder) => {
                    self.store.reset();
                    let remaining = holder.remaining;
                    self.holder = Some(holder);
                    if self.hints.is_none() && now < end {
                        // Subscribe, then try once more before sleeping: a
                        // release in between must not be slept through.
                        if self.subscribe(terms, end).await {
                            continue;
                        }
                    }
                    // A hair later than the store's own instant of expiry.
                    now.after(remaining.min(LOOK_AGAIN) + Duration::from_millis(1))
                }
                Step::Refused(RefusedReason::Quarantine { remaining }) => {
                    now.after(remaining.min(LOOK_AGAIN) + Duration::from_millis(1))
                }
                Step::Refused(RefusedReason::Abandoned | RefusedReason::Revoked)
                | Step::TooLate => {
                    // This owner is burnt; the acquisition goes on with a new
                    // one. Dropping the old one abandons it.
                    requests.replaced = true;
                    *requests = Requests::new(terms)?;
                    now.after(self.store.next(&inner.chance))
                }
                Step::Refused(reason) => return Err(refused(terms, reason)),
                Step::Failed(error) if error.is_transient() => {
                    self.hints = None;
                    self.failed = Some(error);
                    now.after(self.store.next(&inner.chance))
                }
                Step::Failed(error) => return Err(error.into()),
            };
            let end = self.end(terms);
            if clock.now() >= end {
                return Err(self.time_is_up(terms));
            }
            self.sleep(terms, place, wake.min(end)).await;
            if clock.now() >= end {
                return Err(self.time_is_up(terms));
            }
        }
    }

    /// When the wait is over: earlier while the store has never answered.
    fn end(&self, terms: &Terms) -> Moment {
        match self.first_answer_by {
            Some(by) if !self.answered => by.min(terms.wait_until),
            _ => terms.wait_until,
        }
    }

    fn time_is_up(&mut self, terms: &Terms) -> Error {
        match self.failed.take() {
            // Nothing but failures: the store's word is the better answer.
            Some(error) if !self.answered => error.into(),
            failed => contended(terms, self.holder.take(), failed),
        }
    }

    /// Whether a subscription stands now.
    async fn subscribe(&mut self, terms: &Terms, end: Moment) -> bool {
        let clock = &*terms.inner.clock;
        let limit = clock
            .now()
            .after(acquire_limit(terms.ttl, terms.inner.drift));
        let watch = terms.inner.backend.watch(&terms.key);
        let watching = crate::renewal::attempt(clock, limit.min(end), watch).await;
        match watching {
            Ok(hints) => self.hints = Some(hints),
            Err(error) => tracing::debug!(
                target: "leases",
                key = terms.key.as_str(),
                error = %error,
                "no wake-ups for now; the timer stays"
            ),
        }
        self.hints.is_some()
    }

    /// Sleeps until something may have changed.
    async fn sleep(&mut self, terms: &Terms, place: &Place, wake: Moment) {
        let clock = &*terms.inner.clock;
        let hinted = tokio::select! {
            biased;
            () = place.freed() => false,
            hint = next(&mut self.hints) => {
                if hint.is_none() {
                    self.hints = None;
                }
                true
            }
            () = clock.sleep_until(wake) => false,
        };
        if hinted {
            // Hints that come one by one are hand-overs; many at once are a
            // storm.
            if clock.now().since(self.hinted) > HINTS_APART {
                self.hint_pause.reset();
            }
            self.hinted = clock.now();
            let pause = self.hint_pause.next(&terms.inner.chance);
            // The first hint is followed at once: that is the hand-over.
            if pause > Duration::from_millis(1) || self.hints.is_none() {
                let until = clock.now().after(pause).min(wake);
                clock.sleep_until(until).await;
            }
        }
    }
}

async fn next(hints: &mut Option<BoxStream<'static, ()>>) -> Option<()> {
    match hints {
        Some(hints) => hints.next().await,
        None => std::future::pending().await,
    }
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
