//! `Lease`, the handle of a held key.

mod held;
mod word;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub(crate) use held::{Held, Terms};
pub(crate) use word::Word;

use crate::client::Inner;
use crate::clock::Moment;
use crate::error::{Error, StoreError};
use crate::key::Key;
use crate::lost::{Lost, LostReason};
use crate::observe::EventKind;
use crate::owner::Owner;
use crate::renewal::Home;
use crate::retry::ATTEMPT_LIMIT;
use crate::token::Token;
use crate::ttl::Ttl;

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Released {
    /// The key was ours and is free now.
    Freed,
    /// The key is not ours any more: freed by this release, whose first reply
    /// was lost, or gone before it.
    Gone,
}

/// A grant without a handle: nothing renews it, and nothing releases it but
/// its expiry or a call with these words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The key.
    pub key: Key,
    /// Proof of ownership towards the store.
    pub owner: Owner,
    /// The fencing token.
    pub token: Token,
    /// The TTL of its last confirmation.
    pub ttl: Ttl,
    /// How long its holder may still count on it.
    pub remaining: Duration,
    /// A request of its acquisition was never answered and may still reach the
    /// store. If it does so after a release, the store grants once more: end
    /// such a grant with [`abandon`](crate::LeaseBackend::abandon), after or
    /// instead of the release.
    pub unanswered: bool,
}

/// A held key.
///
/// It is renewed in the background, on the runtime that it was acquired on,
/// until it is released, detached, dropped or lost; when that runtime ends, it
/// is lost. Show its [`token`](Self::token) with every write, and call
/// [`check`](Self::check) before each, or put the work into
/// [`run`](Self::run).
///
/// Dropping it releases the key in the background, wherever it is dropped: on
/// a plain thread, during a panic, after the runtime has ended (then the key
/// is free at its expiry).
#[must_use = "dropping a lease releases its key"]
pub struct Lease {
    held: Arc<Held>,
    home: Option<Home>,
    inner: Arc<Inner>,
    done: AtomicBool,
}

impl Lease {
    pub(crate) fn new(held: Arc<Held>, home: Option<Home>, inner: Arc<Inner>) -> Self {
        Self {
            held,
            home,
            inner,
            done: AtomicBool::new(false),
        }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.held.key
    }

    /// The fencing token: show it with every write.
    ///
    /// It is the token of a lease that may be lost by now; [`check`] says so.
    ///
    /// [`check`]: Self::check
    #[must_use]
    pub fn token(&self) -> Token {
        self.held.token
    }

    /// The owner: proof towards the store, never for the resource.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.held.owner
    }

    /// The TTL.
    #[must_use]
    pub fn ttl(&self) -> Ttl {
        self.held.ttl
    }

    /// When the lease is lost unless another renewal is confirmed, on the
    /// client's clock.
    #[must_use]
    pub fn deadline(&self) -> Moment {
        self.held.deadline()
    }

    /// How long the holder may act without another confirmation or sign of
    /// progress; zero when the lease is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.held.lost() {
            Some(_) => Duration::ZERO,
            None => self.held.ends_by().since(self.inner.clock.now()),
        }
    }

    /// Whether the holder may act now. Exact even when timers fire late: it
    /// compares the clock with the deadline and the limits. Call it before each write. No
    /// round trip, no allocation while the lease is held.
    ///
    /// # Errors
    /// [`Lost`] with its reason; it stays lost.
    pub fn check(&self) -> Result<Token, Lost> {
        self.held.check()
    }

    /// Resolves when the lease is lost, at the latest at its deadline: within
    /// a tokio runtime also when the one that renews it is blocked.
    ///
    /// # Cancel safety
    /// Safe; ask again.
    pub async fn lost(&self) -> Lost {
        loop {
            // `lose` sets the reason before it signals: the next turn has it.
            if let Err(lost) = self.check() {
                return lost;
            }
            tokio::select! {
                biased;
                () = self.held.signal.cancelled() => {}
                () = self.sleep_until(self.held.ends_by()) => {}
            }
        }
    }

    /// A timer of the waiter's own, since the runtime of the renewal loop may
    /// be blocked, or not driven.
    async fn sleep_until(&self, until: Moment) {
        if Handle::try_current().is_err() {
            // No timers here: the loop's word must do.
            std::future::pending::<()>().await;
        }
        self.inner.clock.sleep_until(until).await;
    }

    /// Fires when the lease is lost. A child of the lease's own: cancelling it
    /// harms nothing. A release does not fire it.
    ///
    /// It is fired by the runtime that the lease was acquired on, by anybody
    /// who [`check`](Self::check)s, and by those who await
    /// [`lost`](Self::lost); while that runtime stands still and nobody else
    /// looks, it does not fire.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.held.signal.child_token()
    }

    /// Resolves when the deadline is nearer than `margin` because renewals
    /// have not been confirmed, or the lease is lost: time for work that needs
    /// `margin` to stop cleanly. The renewals go on; the lease may yet recover.
    ///
    /// A renewal is confirmed when about a third of the TTL has passed, so a
    /// `margin` of more than half of the TTL resolves without any trouble.
    ///
    /// # Cancel safety
    /// Safe; ask again.
    pub async fn unconfirmed(&self, margin: Duration) {
        let clock = &self.inner.clock;
        loop {
            let left = self.held.deadline().since(clock.now());
            if left <= margin || self.held.lost().is_some() {
                return;
            }
            tokio::select! {
                biased;
                () = self.held.signal.cancelled() => {}
                () = self.sleep_until(clock.now().after(left - margin)) => {}
            }
        }
    }

    /// Runs `work` while the lease is held, and drops it at loss.
    ///
    /// # Errors
    /// [`Lost`]: the work was dropped at its current await point, or it ended
    /// after the deadline.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work; the lease stays held.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        self.check()?;
        tokio::select! {
            biased;
            lost = self.lost() => Err(lost),
            output = work => {
                self.check()?;
                Ok(output)
            }
        }
    }

    /// Says that the work makes progress; see
    /// [`Acquire::progress_within`](crate::Acquire::progress_within).
    pub fn progress(&self) {
        self.held.progress();
    }

    /// Releases the key and says how that ended.
    ///
    /// Nothing is renewed from the call on. A request that fails without a
    /// refusal, or stays unanswered, is repeated for one TTL; after that the
    /// key is free by its expiry anyway.
    ///
    /// # Errors
    /// [`Error::Lost`] when the store's answer is that the grant was not live,
    /// and none of this release's own requests can have ended it: the cause is
    /// the store's. [`Error::Store`] when no answer
    /// came in that time, or the store refuses.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the release: it goes on in the
    /// background.
    pub async fn release(self) -> Result<Released, Error> {
        self.done.store(true, Ordering::Relaxed);
        let Some(answer) = self.inner.keeper.release(&self.held, self.home.as_ref()) else {
            return Err(self.gone());
        };
        // The loop itself ends a release after a TTL and its last attempt.
        let start = self.inner.clock.now();
        let over = start.after(self.held.ttl.get()).max(self.held.deadline());
        tokio::select! {
            biased;
            outcome = answer => outcome.unwrap_or_else(|_| Err(self.gone())),
            () = self.sleep_until(over.after(2 * ATTEMPT_LIMIT)) => {
                Err(StoreError::unknown_outcome(
                    "the runtime that keeps this lease does not run; the key is free at its expiry",
                )
                .into())
            }
        }
    }

    fn gone(&self) -> Error {
        self.held.lose(LostReason::RuntimeGone).clone().into()
    }

    /// Releases the key in the background, as dropping the handle does, while the
    /// handle lives on and sees the lease lost: for who has shared it with others that
    /// may keep it.
    pub fn give_up(&self) {
        if !self.done.swap(true, Ordering::Relaxed) {
            self.held.lose(LostReason::GivenUp);
            drop(self.inner.keeper.release(&self.held, self.home.as_ref()));
        }
    }

    /// Says that the store has ended the grant, as its holder wanted and by other means
    /// than a release of this client's own: by the completion of a queue's item, say.
    /// Nothing is renewed or sent any more, and it is told of as a release is. Of a
    /// handle that has ended, or was given up, it changes nothing: false.
    ///
    /// For a grant that may still be live this is wrong: nobody would release it.
    pub fn ended(&self) -> bool {
        let first = !self.done.swap(true, Ordering::Relaxed);
        if first {
            self.inner.keeper.ended(&self.held, self.home.as_ref());
        }
        first
    }

    /// Gives the handle up without releasing: nothing renews the grant any
    /// more, and the key is free at its expiry or by whoever has the
    /// [`Grant`].
    ///
    /// # Errors
    /// [`Lost`] when it is lost already.
    pub fn detach(self) -> Result<Grant, Lost> {
        self.check()?;
        self.done.store(true, Ordering::Relaxed);
        self.inner.keeper.forget(&self.held, self.home.as_ref());
        if self.held.hold_is_over() {
            self.held.tell(EventKind::Detached);
        }
        Ok(Grant {
            key: self.held.key.clone(),
            owner: self.held.owner,
            token: self.held.token,
            ttl: self.held.ttl,
            remaining: self.held.deadline().since(self.inner.clock.now()),
            unanswered: self.held.unanswered,
        })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !*self.done.get_mut() {
            // A message to the renewal loop: no await, no spawn, no runtime.
            drop(self.inner.keeper.release(&self.held, self.home.as_ref()));
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.held.key)
            .field("owner", &self.held.owner)
            .field("token", &self.held.token)
            .field("remaining", &self.remaining())
            .field("lost", &self.held.lost())
            .finish()
    }
}
