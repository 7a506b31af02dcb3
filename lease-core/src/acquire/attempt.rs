//! One owner's requests for a key, what each comes to, and what is left to
//! clean up.

use std::sync::Arc;
use std::time::Duration;

use super::Terms;
use crate::backend::{AcquireOutcome, AcquireRequest, Granted, Holder, RefusedReason};
use crate::client::Inner;
use crate::clock::Moment;
use crate::error::{Error, StoreError};
use crate::key::Key;
use crate::lease::{Held, Lease, Terms as LeaseTerms};
use crate::observe::EventKind;
use crate::owner::Owner;
use crate::token::TokenRule;

/// One owner's requests, and the duty to abandon it.
///
/// An acquisition that gives up must be abandoned unless it had exactly one
/// attempt, that was answered, and has left no place in a line; dropping this sees to
/// it, wherever the future that owns it was dropped.
pub(super) struct Requests<'a> {
    inner: &'a Inner,
    key: &'a Key,
    owner: Owner,
    /// When the caller asked.
    start: Moment,
    sent: u32,
    answered: u32,
    granted: bool,
    /// The store keeps a place in line for this owner.
    in_line: bool,
    /// The acquisition goes on with another owner.
    pub(super) replaced: bool,
}

impl<'a> Requests<'a> {
    pub(super) fn new(terms: &'a Terms) -> Result<Self, Error> {
        let owner = terms.inner.chance.owner()?;
        terms.inner.acquiring.send_modify(|count| *count += 1);
        Ok(Self {
            inner: &terms.inner,
            key: &terms.key,
            owner,
            start: terms.start,
            sent: 0,
            answered: 0,
            granted: false,
            in_line: false,
            replaced: false,
        })
    }

    fn tell(&self, kind: EventKind) {
        self.inner.observers.tell(self.key, self.owner, None, kind);
    }

    fn give_up(&self) {
        if !self.replaced {
            self.tell(EventKind::GaveUp {
                waited: self.inner.clock.now().since(self.start),
                attempts: self.sent,
            });
        }
        let leaves_nothing = self.sent == 1 && self.answered == 1 && !self.in_line;
        if self.sent > 0 && !leaves_nothing && self.inner.rules.abandon_on_give_up {
            self.inner.keeper.abandon(self.key.clone(), self.owner);
        }
    }
}

impl Drop for Requests<'_> {
    fn drop(&mut self) {
        if !self.granted {
            self.give_up();
        }
        // Last: a shutdown waits for what the lines above have sent.
        self.inner.acquiring.send_modify(|count| *count -= 1);
    }
}

/// What one attempt came to.
pub(super) enum Step {
    Leased(Lease),
    Held(Holder),
    Refused(RefusedReason),
    Failed(StoreError),
    /// Granted, but later than the grant's own deadline.
    TooLate,
}

/// Sends one request and waits for its answer until `limit`. Whoever waits for the key
/// asks again after `waits` at the latest.
pub(super) async fn attempt(
    terms: &Terms,
    requests: &mut Requests<'_>,
    waits: Option<Duration>,
    limit: Moment,
) -> Step {
    let inner = &terms.inner;
    let (clock, rules) = (&*inner.clock, inner.rules);
    let request = AcquireRequest {
        key: terms.key.clone(),
        owner: requests.owner,
        ttl: terms.ttl,
        label: terms.label.clone(),
        rule: TokenRule::NEXT,
        waits,
    };
    requests.sent += 1;
    let number = requests.sent;
    requests.tell(EventKind::Attempt { number });
    // Before the request is sent: the store cannot count from earlier.
    let sent = clock.now();
    let call = || inner.backend.acquire(&request);
    let answer = crate::renewal::attempt(clock, limit, call).await;
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
    // Of a copy that the store sent by itself there is no answer.
    let copies = matches!(&outcome, AcquireOutcome::Granted(granted) if granted.repeated);
    requests.answered += u32::from(!copies);
    match outcome {
        AcquireOutcome::Granted(granted) => {
            let from = if rules.count_from_send { sent } else { now };
            let valid = if rules.drift_allowance {
                inner.drift.validity(terms.ttl)
            } else {
                terms.ttl.get()
            };
            let good_by_sign = inner
                .sign_validity()
                .map_or(Moment::NEVER, |v| from.after(v));
            let deadline = from.after(valid);
            if now >= deadline.min(good_by_sign) && rules.late_grant_dropped {
                requests.tell(EventKind::GrantedTooLate { took });
                // It may be live at the store: it must be abandoned, even
                // after one attempt that was answered.
                requests.answered = 0;
                return Step::TooLate;
            }
            Step::Leased(hand_out(
                terms,
                requests,
                granted,
                sent,
                (deadline, good_by_sign),
                took,
            ))
        }
        AcquireOutcome::Held(holder) => {
            requests.in_line |= waits.is_some() && inner.keeps_order();
            let seen = holder.clone();
            requests.tell(EventKind::Contended { holder: seen, took });
            Step::Held(holder)
        }
        AcquireOutcome::Refused(reason) => {
            requests.in_line |= matches!(reason, RefusedReason::InLine { .. });
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
    (deadline, good_by_sign): (Moment, Moment),
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
            label: terms.label.clone(),
            sent,
            deadline,
            good_by_sign,
            unanswered: requests.answered < requests.sent,
            max_hold: terms.max_hold,
            progress_within: terms.progress_within,
        },
        inner,
    ));
    // Before the turn is handed on: the next head must know.
    inner.lines.hold(&held);
    let now = inner.clock.now();
    held.tell(EventKind::Granted {
        waited: now.since(terms.start),
        attempts: requests.sent,
        took,
        valid_for: held.deadline().since(now),
        taken_over: granted.taken_over,
    });
    let home = inner.keeper.keep(&held);
    Lease::new(held, home, Arc::clone(inner))
}
