//! What a handle and the renewal loop share of one lease: its limits, and that
//! it is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::backend::RenewRequest;
use crate::client::Inner;
use crate::clock::{Clock, Moment};
use crate::error::StoreError;
use crate::key::{Key, Label};
use crate::lost::{Lost, LostReason};
use crate::observe::{EventKind, Observers};
use crate::owner::Owner;
use crate::queue::Lines;
use crate::token::Token;
use crate::ttl::Ttl;

/// What a handle and the renewal loop share of one lease.
#[derive(Debug)]
pub(crate) struct Held {
    /// Unique within its client.
    pub(crate) id: u64,
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) ttl: Ttl,
    pub(super) label: Label,
    pub(crate) granted: Moment,
    /// When its acquisition knew of the grant.
    pub(super) handed_out: Moment,
    /// Some request of the acquisition was never answered and may still reach
    /// the store after the release.
    pub(crate) unanswered: bool,
    max_hold: Option<Duration>,
    progress_within: Option<Duration>,
    /// The latest send that was confirmed.
    confirmed: AtomicU64,
    /// By the TTL.
    deadline: AtomicU64,
    /// By the signs of its client's life, where they count.
    good_by_sign: AtomicU64,
    progress: AtomicU64,
    /// What the last renewal ran into, until one is confirmed.
    last_error: Mutex<Option<StoreError>>,
    lost: OnceLock<Lost>,
    pub(super) signal: CancellationToken,
    over: AtomicBool,
    given_up: AtomicU64,
    lines: Arc<Lines>,
    clock: Arc<dyn Clock>,
    observers: Observers,
    ends_at_deadline: bool,
}

/// What the acquisition knows when it hands a lease out.
pub(crate) struct Terms {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) ttl: Ttl,
    pub(crate) label: Label,
    pub(crate) sent: Moment,
    pub(crate) deadline: Moment,
    pub(crate) good_by_sign: Moment,
    pub(crate) unanswered: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) progress_within: Option<Duration>,
}

impl Held {
    pub(crate) fn new(terms: Terms, inner: &Inner) -> Self {
        inner.observers.held(true);
        let now = inner.clock.now();
        Self {
            id: inner.count.fetch_add(1, Ordering::Relaxed),
            key: terms.key,
            owner: terms.owner,
            token: terms.token,
            ttl: terms.ttl,
            label: terms.label,
            granted: terms.sent,
            handed_out: now,
            unanswered: terms.unanswered,
            max_hold: terms.max_hold,
            progress_within: terms.progress_within,
            confirmed: AtomicU64::new(terms.sent.as_nanos()),
            deadline: AtomicU64::new(terms.deadline.as_nanos()),
            good_by_sign: AtomicU64::new(terms.good_by_sign.as_nanos()),
            progress: AtomicU64::new(now.as_nanos()),
            last_error: Mutex::new(None),
            lost: OnceLock::new(),
            signal: CancellationToken::new(),
            over: AtomicBool::new(false),
            given_up: AtomicU64::new(Moment::NEVER.as_nanos()),
            lines: Arc::clone(&inner.lines),
            clock: Arc::clone(&inner.clock),
            observers: inner.observers.clone(),
            ends_at_deadline: inner.rules.lost_at_deadline,
        }
    }

    pub(crate) fn renewal(&self) -> RenewRequest {
        RenewRequest {
            key: self.key.clone(),
            owner: self.owner,
            token: self.token,
            ttl: self.ttl,
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        let by_ttl = self.deadline.load(Ordering::Acquire);
        Moment::from_nanos(by_ttl.min(self.good_by_sign.load(Ordering::Acquire)))
    }

    /// The send of the latest confirmed request.
    pub(super) fn confirmed(&self) -> Moment {
        Moment::from_nanos(self.confirmed.load(Ordering::Acquire))
    }

    /// A confirmed request moves the deadline forward, never back.
    pub(crate) fn confirm(&self, from: Moment, until: Moment, may_move_back: bool) {
        self.confirmed.fetch_max(from.as_nanos(), Ordering::AcqRel);
        if may_move_back {
            self.deadline.store(until.as_nanos(), Ordering::Release);
        } else {
            self.deadline.fetch_max(until.as_nanos(), Ordering::AcqRel);
        }
    }

    /// A sign of life is good until then.
    pub(crate) fn sign(&self, until: Moment) {
        self.good_by_sign
            .fetch_max(until.as_nanos(), Ordering::AcqRel);
    }

    pub(crate) fn lost(&self) -> Option<&Lost> {
        self.lost.get()
    }

    /// The holder says that it makes progress.
    pub(super) fn progress(&self) {
        let now = self.clock.now().as_nanos();
        self.progress.fetch_max(now, Ordering::AcqRel);
    }

    /// Says that the holder may no longer act. The first reason stays.
    pub(crate) fn lose(&self, reason: LostReason) -> &Lost {
        let mut first = false;
        let lost = self.lost.get_or_init(|| {
            first = true;
            Lost {
                key: self.key.clone(),
                token: self.token,
                reason,
            }
        });
        if first {
            self.signal.cancel();
            self.hold_is_over();
            let reason = lost.reason.clone();
            self.tell(EventKind::Lost { reason });
        }
        lost
    }

    /// Whether this was the first end of the hold: loss, release or detach.
    pub(crate) fn hold_is_over(&self) -> bool {
        let first = !self.over.swap(true, Ordering::AcqRel);
        if first {
            self.observers.held(false);
            self.lines.over(self);
        }
        first
    }

    /// Its holder has released, dropped or detached it.
    pub(crate) fn give_up(&self) {
        let now = self.clock.now().as_nanos();
        self.given_up.fetch_min(now, Ordering::AcqRel);
    }

    /// When it was, if it was.
    pub(crate) fn given_up(&self) -> Option<Moment> {
        let when = Moment::from_nanos(self.given_up.load(Ordering::Acquire));
        (when != Moment::NEVER).then_some(when)
    }

    pub(crate) fn tell(&self, kind: EventKind) {
        self.observers
            .tell(&self.key, self.owner, Some(self.token), kind);
    }

    pub(crate) fn set_last_error(&self, error: Option<StoreError>) {
        *self.last_error.lock().unwrap_or_else(|e| e.into_inner()) = error;
    }

    /// Until when each of the optional limits lets it be held.
    fn limits(&self) -> (Moment, Moment) {
        let after = |from: Moment, limit: Option<Duration>| {
            limit.map_or(Moment::NEVER, |limit| from.after(limit))
        };
        let progress = Moment::from_nanos(self.progress.load(Ordering::Acquire));
        (
            after(self.granted, self.max_hold),
            after(progress, self.progress_within),
        )
    }

    /// When it ends unless something is confirmed or progresses.
    pub(crate) fn ends_by(&self) -> Moment {
        let (held, quiet) = self.limits();
        let by = held.min(quiet);
        if self.ends_at_deadline {
            by.min(self.deadline())
        } else {
            by
        }
    }

    /// Why it ends now, if it does.
    pub(crate) fn ending(&self, now: Moment) -> Option<LostReason> {
        if now < self.ends_by() {
            return None;
        }
        if self.ends_at_deadline && now >= self.deadline() {
            let last_error = self.last_error.lock().unwrap_or_else(|e| e.into_inner());
            return Some(LostReason::Unconfirmed {
                last_error: last_error.clone(),
            });
        }
        let (held, quiet) = self.limits();
        match (self.max_hold, self.progress_within) {
            (Some(limit), _) if now >= held => Some(LostReason::MaxHold { limit }),
            (_, Some(limit)) if now >= quiet => Some(LostReason::NoProgress { limit }),
            // Confirmed or progressed in between.
            _ => None,
        }
    }

    /// Whether the holder may act now.
    pub(crate) fn check(&self) -> Result<Token, Lost> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        match self.ending(self.clock.now()) {
            Some(reason) => Err(self.lose(reason).clone()),
            None => Ok(self.token),
        }
    }
}
