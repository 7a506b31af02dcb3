//! One event for every step of a lease's life, and who is told of it.
//!
//! Events go to `tracing` (target `leases`), to the `metrics` facade behind
//! the feature of that name, and to any [`Observer`] of the application's.
//! The guide *Observability* of the crate `leases` lists every field and
//! metric.

#[cfg(feature = "metrics")]
mod measure;
mod trace;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Holder, RefusedReason, ReleaseOutcome, TakenOver};
use crate::error::StoreError;
use crate::key::Key;
use crate::lost::LostReason;
use crate::owner::Owner;
use crate::token::Token;

/// The target of the log line by which a list tells of a record that it leaves out, since
/// something else than the store's stands there. Its fields are those of the record, as
/// far as that can be read, and `error`.
pub const UNREADABLE: &str = "leases::unreadable";

/// One step of a lease's life.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// The key.
    pub key: Key,
    /// The acquisition's owner. Its `Debug` form is short enough for a log.
    pub owner: Owner,
    /// The fencing token, once there is one.
    pub token: Option<Token>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// The store is asked for the key.
    Attempt {
        /// 1 for the first.
        number: u32,
    },
    /// Somebody else holds the key.
    Contended {
        /// Who, as the store sees it.
        holder: Holder,
        /// How long the store took to say so.
        took: Duration,
    },
    /// The store refused to grant.
    Refused {
        /// Why.
        reason: RefusedReason,
        /// How long the store took to say so.
        took: Duration,
    },
    /// An attempt failed, or its outcome is unknown.
    AttemptFailed {
        /// How.
        error: StoreError,
        /// How long it took to fail.
        took: Duration,
    },
    /// The key is this owner's.
    Granted {
        /// Since the caller asked.
        waited: Duration,
        /// How many attempts it took.
        attempts: u32,
        /// How long the store took for the last one.
        took: Duration,
        /// How long the holder may act without another confirmation.
        valid_for: Duration,
        /// From whom it was taken over: a grant that expired or was revoked.
        taken_over: Option<TakenOver>,
    },
    /// A grant arrived after its own deadline and was not handed out.
    GrantedTooLate {
        /// How long the store took.
        took: Duration,
    },
    /// The acquisition ended without a lease: time up, cancelled or refused.
    GaveUp {
        /// Since the caller asked.
        waited: Duration,
        /// How many attempts had been made.
        attempts: u32,
    },
    /// An owner whose requests may still be under way was abandoned at the
    /// store.
    Abandoned,
    /// The store could not be told; an orphan may block the key for one TTL.
    AbandonFailed {
        /// How.
        error: StoreError,
    },
    /// A renewal was confirmed.
    Renewed {
        /// From its send to its reply.
        took: Duration,
        /// How long the holder may act from now on.
        valid_for: Duration,
    },
    /// A renewal failed, or is unanswered; it is tried again.
    RenewalFailed {
        /// How.
        error: StoreError,
        /// How many have failed in a row.
        failures: u32,
        /// How long the holder may still act.
        valid_for: Duration,
    },
    /// The holder may no longer act.
    Lost {
        /// Why.
        reason: LostReason,
    },
    /// A release was answered.
    Released {
        /// How.
        outcome: ReleaseOutcome,
        /// Since the grant.
        held_for: Duration,
    },
    /// A release failed, or is unanswered; it is sent again.
    ReleaseRetried {
        /// How.
        error: StoreError,
    },
    /// A release could not be confirmed; the key is free at its expiry.
    ReleaseFailed {
        /// How.
        error: StoreError,
    },
    /// The handle was detached: the grant lives on without it until its
    /// expiry.
    Detached,
}

impl EventKind {
    /// The stable word for logs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Attempt { .. } => "attempt",
            Self::Contended { .. } => "contended",
            Self::Refused { .. } => "refused",
            Self::AttemptFailed { .. } => "attempt_failed",
            Self::Granted { .. } => "granted",
            Self::GrantedTooLate { .. } => "granted_too_late",
            Self::GaveUp { .. } => "gave_up",
            Self::Abandoned => "abandoned",
            Self::AbandonFailed { .. } => "abandon_failed",
            Self::Renewed { .. } => "renewed",
            Self::RenewalFailed { .. } => "renewal_failed",
            Self::Lost { .. } => "lost",
            Self::Released { .. } => "released",
            Self::ReleaseRetried { .. } => "release_retried",
            Self::ReleaseFailed { .. } => "release_failed",
            Self::Detached => "detached",
        }
    }
}

/// Is told of every event, in the order in which they happen to one lease.
///
/// Called where the event happens, the renewal loop included: do not block.
/// A panic in here is caught and logged, and harms no lease.
pub trait Observer: Send + Sync + 'static {
    /// One event.
    fn observe(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync + 'static> Observer for F {
    fn observe(&self, event: &Event) {
        self(event);
    }
}

/// Everybody who is told.
#[derive(Clone)]
pub(crate) struct Observers {
    store: Arc<str>,
    others: Arc<[Arc<dyn Observer>]>,
}

impl Observers {
    pub(crate) fn new(store: &str, others: Vec<Arc<dyn Observer>>) -> Self {
        Self {
            store: store.into(),
            others: others.into(),
        }
    }

    pub(crate) fn tell(&self, key: &Key, owner: Owner, token: Option<Token>, kind: EventKind) {
        let event = Event {
            key: key.clone(),
            owner,
            token,
            kind,
        };
        trace::event(&self.store, &event);
        #[cfg(feature = "metrics")]
        measure::event(&self.store, &event);
        for other in &*self.others {
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                other.observe(&event);
            }));
            if told.is_err() {
                tracing::error!(
                    target: "leases",
                    event = event.kind.as_str(),
                    "an observer of lease events panicked; the lease goes on"
                );
            }
        }
    }

    /// The number of leases held by this client changed by one.
    pub(crate) fn held(&self, more: bool) {
        #[cfg(feature = "metrics")]
        measure::held(&self.store, more);
        #[cfg(not(feature = "metrics"))]
        let _ = more;
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers")
            .field("store", &self.store)
            .field("others", &self.others.len())
            .finish()
    }
}
