//! One lease in the loop: when its next renewal is due, and what the last ones
//! came to.

use std::sync::Arc;
use std::time::Duration;

use super::pulse::Grace;
use crate::backend::{RenewRequest, Session};
use crate::client::Parts;
use crate::clock::Moment;
use crate::error::StoreError;
use crate::lease::Held;
use crate::observe::EventKind;
use crate::retry::{Backoff, Pace};

/// A lease's number. Everything in the loop goes in its order, so that one
/// seed gives one run.
pub(super) type Id = u64;

pub(super) struct Entry {
    pub(super) held: Arc<Held>,
    pace: Pace,
    pub(super) backoff: Backoff,
    /// Where its grant ends with the client's session.
    grace: Option<Grace>,
    /// The latest sign of life that counts for it.
    sign: Moment,
    /// A confirmed renewal has carried it, or a later one, to the store.
    session: Session,
    /// When the next renewal is due.
    next: Moment,
    /// Not earlier than this, whatever else goes out.
    not_before: Moment,
    /// The send of the latest attempt, and whether it is still unanswered.
    pub(super) sent: Moment,
    unanswered: bool,
    /// The latest send that was confirmed.
    confirmed: Moment,
    /// In a row.
    failures: u32,
    /// Where the entry stands among the timers.
    pub(super) timer: Moment,
}

impl Entry {
    pub(super) fn new(held: Arc<Held>, parts: &Parts) -> Self {
        let pace = Pace::of(held.ttl, parts.drift.validity(held.ttl), &parts.chance);
        let sent = held.granted;
        let grace = Grace::of(parts);
        let mut pace = pace;
        let mut time = held.ttl.get();
        if let Some(grace) = grace {
            time = time.min(grace.valid());
            pace = pace.within(grace.without());
        }
        Self {
            backoff: Backoff::renewal(time),
            grace,
            sign: sent,
            session: Session::NONE,
            next: sent.after(pace.renew_after),
            not_before: sent,
            held,
            pace,
            sent,
            unanswered: false,
            confirmed: sent,
            failures: 0,
            timer: Moment::NEVER,
        }
    }

    /// The next thing that can happen to it.
    pub(super) fn wake(&self) -> Moment {
        match self.held.lost() {
            Some(_) => Moment::NEVER,
            // A timer that comes while the pause still holds would come again
            // at once, and again.
            None => self.due().max(self.not_before).min(self.held.ends_by()),
        }
    }

    /// When the next renewal is due: earlier for want of other signs of life.
    fn due(&self) -> Moment {
        match self.grace {
            Some(grace) => self.next.min(self.sign.after(grace.without())),
            None => self.next,
        }
    }

    /// Whether a renewal goes out now. One that is due `soon` goes along, but
    /// half of a pause after a failure is kept: it may be shorter than that.
    pub(super) fn is_due(&self, now: Moment, soon: Moment) -> bool {
        self.held.lost().is_none() && self.due() <= soon && self.not_before <= now
    }

    pub(super) fn request(&self) -> RenewRequest {
        self.held.renewal()
    }

    /// Another attempt goes out, beside one that is still unanswered.
    pub(super) fn sends(&mut self, now: Moment) {
        if self.unanswered {
            let silence = StoreError::unknown_outcome(
                "a renewal is still unanswered; check the store's latency against the TTL",
            );
            self.tell_failed(silence, now);
        }
        self.sent = now;
        self.unanswered = true;
        self.next = now.after(self.pace.patience);
        if self.grace.is_some() {
            // What is due for want of a sign stays due until the answer.
            self.not_before = self.next;
        }
    }

    /// A ping was answered by this session. `any`: with the rule that it must be
    /// the lease's own taken out.
    pub(super) fn signed(&mut self, from: Moment, session: Session, any: bool) {
        let own = session != Session::NONE && session == self.session;
        if let Some(grace) = self.grace
            && (own || any)
        {
            self.sign = self.sign.max(from);
            self.held.sign(from.after(grace.valid()));
        }
    }

    /// Whether its grant may not carry this session yet.
    pub(super) fn lacks(&self, session: Session) -> bool {
        self.grace.is_some() && self.session < session
    }

    /// Beside one that is under way, which does not carry what is to be carried.
    pub(super) fn renew_at_once(&mut self, now: Moment) {
        (self.next, self.not_before) = (now, now);
    }

    /// What was sent carried this session, or a later one.
    pub(super) fn carried(&mut self, from: Moment, session: Session) {
        self.session = self.session.max(session);
        self.signed(from, self.session, true);
    }

    pub(super) fn succeeded(&mut self, sent: Moment, now: Moment) {
        self.confirmed = self.confirmed.max(sent);
        self.unanswered &= sent != self.sent;
        self.failures = 0;
        self.held.set_last_error(None);
        self.backoff.reset();
        self.next = self.confirmed.after(self.pace.renew_after).max(now);
    }

    pub(super) fn failed(&mut self, error: StoreError, sent: Moment, now: Moment, pause: Duration) {
        if sent == self.sent {
            self.unanswered = false;
            self.next = now.after(pause);
            self.not_before = now.after(pause / 2);
            self.tell_failed(error, now);
        } else if self.failures > 0 {
            // An older attempt's failure changes nothing for the one under
            // way, and its silence was told of. It may know the reason.
            self.held.set_last_error(Some(error));
        }
    }

    fn tell_failed(&mut self, error: StoreError, now: Moment) {
        self.failures = self.failures.saturating_add(1);
        self.held.set_last_error(Some(error.clone()));
        self.held.tell(EventKind::RenewalFailed {
            error,
            failures: self.failures,
            valid_for: self.held.deadline().since(now),
        });
    }
}
