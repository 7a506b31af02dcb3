//! Acquiring: what the caller asks for, and the wait until it is granted.

mod attempt;
mod wait;
mod wake;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, info_span};

use crate::backend::Holder;
use crate::client::Inner;
use crate::clock::Moment;
use crate::error::{Error, InvalidInput};
use crate::key::{Key, Label};
use crate::lease::Lease;
use crate::ttl::Ttl;

pub(crate) use wake::WakeUps;

/// The answer to [`Acquire::try_acquire`].
#[derive(Debug)]
#[must_use = "dropping an acquired lease releases its key"]
pub enum Attempt {
    /// The key is ours.
    Acquired(Lease),
    /// Somebody else holds it: who, as the store sees it.
    Held(Holder),
}

impl Attempt {
    /// The lease, if there is one.
    #[must_use]
    pub fn lease(self) -> Option<Lease> {
        match self {
            Self::Acquired(lease) => Some(lease),
            Self::Held(_) => None,
        }
    }
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Forever,
    For(Duration),
    Until(Moment),
}

/// An acquisition, before it is sent. Made by [`Leases::lease`].
///
/// [`Leases::lease`]: crate::Leases::lease
#[must_use = "nothing is sent before `acquire` or `try_acquire`"]
pub struct Acquire {
    inner: Arc<Inner>,
    key: Result<Key, InvalidInput>,
    ttl: Result<Ttl, InvalidInput>,
    label: Result<Label, InvalidInput>,
    patience: Patience,
    first_answer_within: Option<Duration>,
    cancel: Option<CancellationToken>,
    max_hold: Option<Duration>,
    progress_within: Option<Duration>,
}

impl Acquire {
    pub(crate) fn new(inner: Arc<Inner>, key: Result<Key, InvalidInput>) -> Self {
        Self {
            key,
            ttl: Ok(inner.ttl),
            label: Ok(inner.label.clone()),
            inner,
            patience: Patience::Forever,
            first_answer_within: None,
            cancel: None,
            max_hold: None,
            progress_within: None,
        }
    }

    /// How long the grant lasts at the store without a renewal. Defaults to
    /// the client's, 30 s. A value out of range is reported by `acquire`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Ttl::new(ttl);
        self
    }

    /// Free text for people. Defaults to the client's. One that is too long is
    /// reported by `acquire`.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Label::new(label);
        self
    }

    /// Waits for at most this long, counted from the call of `acquire`; zero
    /// means exactly one attempt. Defaults to waiting without limit.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.patience = Patience::For(limit);
        self
    }

    /// Waits until this moment of the client's clock.
    pub fn wait_until(mut self, until: Moment) -> Self {
        self.patience = Patience::Until(until);
        self
    }

    /// Waits without limit; the default.
    pub fn wait_forever(mut self) -> Self {
        self.patience = Patience::Forever;
        self
    }

    /// Gives up when the store has answered nothing at all for this long:
    /// a store that was never there is an error, one that goes away during the
    /// wait is waited for. Defaults to no such limit.
    pub fn first_answer_within(mut self, limit: Duration) -> Self {
        self.first_answer_within = Some(limit);
        self
    }

    /// Ends the wait with [`Error::Cancelled`] when this fires. It has no
    /// effect on the lease once that is acquired.
    pub fn cancel_with(mut self, cancel: CancellationToken) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// The lease is lost when it has been held for this long, so that a worker
    /// that hangs cannot keep it for ever. Defaults to no limit.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// The lease is lost when [`Lease::progress`] was not called for this
    /// long. Defaults to no such requirement: a quiet worker keeps its lease.
    pub fn progress_within(mut self, limit: Duration) -> Self {
        self.progress_within = Some(limit);
        self
    }

    /// Waits for the key, first come first served among the waiters of this
    /// client. Only the first of them asks the store, and not while it knows
    /// that a lease of this client holds the key: it then waits for the end of
    /// that one, so a release costs one attempt. Where the store serves clients
    /// [in order](crate::WaiterOrder::Fifo) the first waiter takes this client's place
    /// among them, and asks every five seconds to keep it.
    ///
    /// # Errors
    /// [`Error::Contended`] when the wait is over, [`Error::Cancelled`],
    /// [`Error::Refused`], [`Error::Store`] when the store refuses for good or
    /// has never answered, [`Error::Invalid`] before anything is sent.
    ///
    /// # Cancel safety
    /// Dropping the future gives the place in the queue up. A request that was
    /// under way is abandoned at the store in the background: it cannot block
    /// the key. A future that is kept but not polled keeps its place in the
    /// queue, and those behind it waiting.
    pub async fn acquire(self) -> Result<Lease, Error> {
        let terms = self.terms()?;
        let span = terms.span();
        wait::acquire(&terms).instrument(span).await
    }

    /// Asks the store exactly once and does not wait. Where the store serves clients
    /// [in order](crate::WaiterOrder::Fifo) it passes none of those who wait: the key is
    /// [`Held`](Attempt::Held) by the first of them while it is kept for them.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), without `Contended`: that is
    /// [`Attempt::Held`]. An attempt whose outcome is unknown is abandoned,
    /// not repeated.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(self) -> Result<Attempt, Error> {
        let terms = self.terms()?;
        let span = terms.span();
        wait::attempt_once(&terms).instrument(span).await
    }

    /// Acquires, runs `work` under the lease, and releases: whether the work
    /// succeeded, failed, or was dropped at loss.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire), and [`Error::Lost`] when the lease was
    /// lost before the work ended.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work and releases in the background.
    pub async fn run<T, F>(self, work: impl FnOnce(Working) -> F) -> Result<T, Error>
    where
        F: Future<Output = T>,
    {
        let lease = Arc::new(self.acquire().await?);
        let output = lease.run(work(Working(Arc::clone(&lease)))).await?;
        if let Ok(lease) = Arc::try_unwrap(lease) {
            // The work is done; how the release ended is in the events.
            let _ = lease.release().await;
        }
        Ok(output)
    }

    fn terms(self) -> Result<Terms, Error> {
        let guarantees = &self.inner.guarantees;
        let (key, ttl, label) = (self.key?, self.ttl?, self.label?);
        if key.as_str().len() > guarantees.max_key_bytes {
            return Err(InvalidInput::KeyTooLongForStore {
                bytes: key.as_str().len(),
                max: guarantees.max_key_bytes,
            }
            .into());
        }
        let range = guarantees.ttl;
        if ttl.get() < range.min || ttl.get() > range.max {
            return Err(InvalidInput::TtlOutOfRange {
                ttl: ttl.get(),
                min: range.min,
                max: range.max,
            }
            .into());
        }
        let drift = self.inner.drift;
        if self.inner.validity(ttl).is_zero() {
            return Err(InvalidInput::NothingLeft {
                ttl: ttl.get(),
                allowance: drift.of(ttl),
            }
            .into());
        }
        let options = [
            ("max_hold", self.max_hold),
            ("progress_within", self.progress_within),
        ];
        if let Some((option, _)) = options.into_iter().find(|o| o.1 == Some(Duration::ZERO)) {
            return Err(InvalidInput::ZeroDuration { option }.into());
        }
        let start = self.inner.clock.now();
        Ok(Terms {
            key,
            ttl,
            label,
            start,
            wait_until: match self.patience {
                Patience::Forever => Moment::NEVER,
                Patience::For(limit) => start.after(limit),
                Patience::Until(moment) => moment,
            },
            first_answer_within: self.first_answer_within,
            cancel: self.cancel.unwrap_or_default(),
            max_hold: self.max_hold,
            progress_within: self.progress_within,
            inner: self.inner,
        })
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("key", &self.key)
            .field("ttl", &self.ttl)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

/// The lease inside of [`Acquire::run`]: everything but its end.
///
/// A clone that outlives the work keeps the lease; the key is released with
/// the last of them.
#[derive(Clone, Debug)]
pub struct Working(Arc<Lease>);

impl std::ops::Deref for Working {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.0
    }
}

/// An acquisition whose words have been checked.
struct Terms {
    inner: Arc<Inner>,
    key: Key,
    ttl: Ttl,
    label: Label,
    start: Moment,
    wait_until: Moment,
    first_answer_within: Option<Duration>,
    cancel: CancellationToken,
    max_hold: Option<Duration>,
    progress_within: Option<Duration>,
}

impl Terms {
    fn span(&self) -> Span {
        let store: &str = &self.inner.guarantees.store;
        info_span!(target: "leases", "acquire", key = self.key.as_str(), store)
    }
}
