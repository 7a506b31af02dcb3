//! `Claim`, the handle of a claimed item.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{Key, Lease, Token};

use crate::error::SettleError;
use crate::item::{ClaimRef, ItemId};
use crate::name::Lane;
use crate::queue::Inner;
use crate::queue::leases::{Entry, give_back};
use crate::queue::settling::Unsettled;
use crate::store::{Settle, Settled};

/// What keeps a claim: its lease, and what becomes of its item.
#[derive(Debug)]
pub(crate) struct Hold {
    pub(crate) lease: Lease,
    pub(super) entry: Arc<Entry>,
    pub(super) inner: Arc<Inner>,
    pub(crate) attempt: u32,
    pub(crate) age: Duration,
}

impl Hold {
    pub(crate) fn claim(&self) -> &ClaimRef {
        &self.entry.claim
    }

    pub(crate) fn group(&self) -> Option<&Key> {
        match &self.claim().lane {
            Lane::Group(group) => Some(group),
            _ => None,
        }
    }

    /// What a failed attempt does: it counts, the item waits, and is buried after the
    /// last one.
    pub(crate) fn failed(&self, why: &str) -> Settle {
        let why = for_people(why);
        match self.inner.max_attempts {
            Some(most) if self.attempt >= most => Settle::Bury { reason: why },
            _ => Settle::Retry {
                delay: match self.inner.can.delay {
                    true => self.inner.backoff.after(self.attempt),
                    false => Duration::ZERO,
                },
                counts: true,
                error: Some(why),
            },
        }
    }

    pub(crate) fn buried(&self, reason: &str) -> Settle {
        Settle::Bury {
            reason: for_people(reason),
        }
    }

    /// When the lease ends, in the background if need be, this is done.
    pub(crate) fn finally(&self, settle: Settle) {
        self.entry.set(settle);
    }
}

impl Drop for Hold {
    /// Of a claim that was settled nothing is left to release: the lease only ends.
    /// Whatever else it is, its lease releases it.
    fn drop(&mut self) {
        // Of one that was given up the release looks for the claim, and forgets it.
        if self.entry.is_settled() && self.lease.ended() {
            // After that, or a renewal would find no claim that is kept.
            self.inner.claims.settled(&self.lease);
        }
    }
}

/// The longest text that is kept of what went wrong, in bytes.
const TEXT_BYTES: usize = 1024;

/// Text that fits and that every store can keep.
fn for_people(text: &str) -> String {
    let mut clean = String::with_capacity(text.len().min(TEXT_BYTES));
    for c in text.chars() {
        let c = if c.is_control() && c != '\n' { '?' } else { c };
        if clean.len() + c.len_utf8() > TEXT_BYTES {
            break;
        }
        clean.push(c);
    }
    clean
}

/// A claimed item.
///
/// Its [`lease`](Self::lease) is renewed in the background until the claim is settled,
/// dropped or lost. Show its [`token`](Self::token) with every write, and let the work
/// end at its loss: [`Lease::run`] does.
///
/// Dropping it gives the item back in the background; the attempt does not count.
#[must_use = "dropping a claim gives its item back"]
pub struct Claim<T> {
    payload: T,
    pub(super) hold: Arc<Hold>,
}

impl<T> Claim<T> {
    pub(super) fn new(payload: T, hold: Arc<Hold>) -> Self {
        Self { payload, hold }
    }

    pub(crate) fn split(self) -> (T, Arc<Hold>) {
        (self.payload, self.hold)
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// Which attempt this is, from 1. Never a fence: it may count down.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.hold.attempt
    }

    /// How long ago the item was put when it was claimed, by the store's clock.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.hold.age
    }

    /// The item.
    #[must_use]
    pub fn item(&self) -> ItemId {
        self.hold.claim().item
    }

    /// The item's group.
    #[must_use]
    pub fn group(&self) -> Option<&Key> {
        self.hold.group()
    }

    /// The fencing token: show it with every write.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.lease.token()
    }

    /// The lease of the item, or of its group: loss, deadline, progress.
    pub fn lease(&self) -> &Lease {
        &self.hold.lease
    }

    /// The claim as the store knows it, for what a store offers beside
    /// [`QueueStore`](crate::QueueStore): to complete it in a transaction, say.
    #[must_use]
    pub fn claim_ref(&self) -> &ClaimRef {
        self.hold.claim()
    }

    /// Says that the item was completed, retried or buried by other means, in a
    /// transaction of the store's own, say: nothing is sent any more.
    pub fn settled(self) {
        self.hold.entry.end(Some(Settled::Done));
    }

    /// The item is done and leaves the queue.
    ///
    /// # Errors
    /// [`SettleError::Lost`] when the claim was not live: somebody else may do the work
    /// again. [`SettleError::Unsettled`] with the claim when no answer says.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the completion: it goes on in the background,
    /// for one TTL.
    pub async fn complete(self) -> Result<(), SettleError<T>> {
        self.end(Settle::Complete).await
    }

    /// The item goes back to its place and cannot be claimed before `delay` has passed.
    /// The attempt counts; the item is not buried, however often this is done.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn retry_after(self, delay: Duration) -> Result<(), SettleError<T>> {
        self.end(Settle::Retry {
            delay,
            counts: true,
            error: None,
        })
        .await
    }

    /// The item goes back to its place, at once, and the attempt does not count.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn abandon(self) -> Result<(), SettleError<T>> {
        self.end(give_back()).await
    }

    /// The attempt failed: it counts, and the item waits for the queue's backoff, or is
    /// buried when this was its last attempt. `why` is for people and is cut to a
    /// kilobyte.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn fail(self, why: impl AsRef<str>) -> Result<(), SettleError<T>> {
        let settle = self.hold.failed(why.as_ref());
        self.end(settle).await
    }

    /// The item is set aside until somebody looks, whatever its attempts.
    ///
    /// # Errors
    /// As [`complete`](Self::complete).
    ///
    /// # Cancel safety
    /// As [`complete`](Self::complete).
    pub async fn bury(self, reason: impl AsRef<str>) -> Result<(), SettleError<T>> {
        let settle = self.hold.buried(reason.as_ref());
        self.end(settle).await
    }

    async fn end(self, settle: Settle) -> Result<(), SettleError<T>> {
        match self.hold.settle(settle).await {
            Ok(()) => Ok(()),
            Err(Unsettled::Lost(lost)) => Err(SettleError::Lost(lost)),
            Err(Unsettled::Store(error)) => Err(SettleError::Unsettled {
                claim: Box::new(self),
                error,
            }),
        }
    }
}

impl<T> fmt::Debug for Claim<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("item", &self.item())
            .field("attempt", &self.attempt())
            .field("lease", self.lease())
            .finish_non_exhaustive()
    }
}
