//! The signs of life of a client whose leases end with its session: a ping
//! several times in each grace, for all of its leases at once.

use std::time::Duration;

use crate::backend::Session;
use crate::client::Parts;
use crate::clock::Moment;
use crate::retry::Backoff;

/// Pings in one grace. One that fails leaves time for a new session, and for the
/// renewals that carry it.
const IN_A_GRACE: u32 = 4;
/// What one ping may take of the grace.
const PATIENCE: u32 = 3;
/// What may pass of the grace without a sign before a lease is renewed for want
/// of it: a renewal is a sign, too.
const WITHOUT: u32 = 2;

/// What a lease of such a client needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grace {
    grace: Duration,
    /// How long after its send a sign is good for.
    valid: Duration,
}

impl Grace {
    pub(super) fn of(parts: &Parts) -> Option<Self> {
        let (grace, valid) = (parts.grace()?, parts.sign_validity()?);
        Some(Self { grace, valid })
    }

    pub(super) fn valid(self) -> Duration {
        self.valid
    }

    /// How old a sign may be before the lease is renewed.
    pub(super) fn without(self) -> Duration {
        self.grace / WITHOUT
    }
}

#[derive(Debug)]
pub(super) struct Pulse {
    grace: Grace,
    next: Moment,
    under_way: bool,
    /// The one that the last answer named.
    session: Session,
    backoff: Backoff,
}

impl Pulse {
    pub(super) fn new(grace: Grace) -> Self {
        let most = grace.grace / 8;
        Self {
            grace,
            next: Moment::START,
            under_way: false,
            session: Session::NONE,
            backoff: Backoff::new(most / 4, most),
        }
    }

    /// A renewal that is sent now carries this session, or a later one.
    pub(super) fn session(&self) -> Session {
        self.session
    }

    /// When the next ping is due.
    pub(super) fn wake(&self) -> Moment {
        match self.under_way {
            true => Moment::NEVER,
            false => self.next,
        }
    }

    /// It is sent now; until when its answer is waited for.
    pub(super) fn sends(&mut self, now: Moment) -> Moment {
        self.under_way = true;
        now.after(self.grace.grace / PATIENCE)
    }

    /// Whether the session is another one than before.
    pub(super) fn answered(&mut self, sent: Moment, session: Session, now: Moment) -> bool {
        self.under_way = false;
        self.backoff.reset();
        self.next = sent.after(self.grace.grace / IN_A_GRACE).max(now);
        let changed = self.session != session;
        self.session = session;
        changed
    }

    pub(super) fn failed(&mut self, parts: &Parts, now: Moment) {
        self.under_way = false;
        self.next = now.after(self.backoff.next(&parts.chance));
    }
}
