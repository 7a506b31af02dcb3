//! A queue's settings.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{
    Clock, DriftAllowance, Event, InvalidInput, Key, Label, Leases, Observer, StoreError,
    SystemClock, Ttl,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::error::QueueError;
use crate::name::{QueueInput, QueueName};
use crate::queue::leases::ClaimLeases;
use crate::queue::told::Told;
use crate::queue::{Backoff, Inner, Queue};
use crate::store::QueueStore;

/// The TTL of claims unless said otherwise.
const DEFAULT_TTL: Duration = Duration::from_secs(30);
/// After so many failed attempts an item is buried unless said otherwise.
const DEFAULT_ATTEMPTS: u32 = 5;

/// Settings of a [`Queue`]. Values that no queue takes are reported by
/// [`build`](Self::build).
#[must_use = "a builder does nothing until `build`"]
pub struct QueueBuilder<T, C> {
    store: Arc<dyn QueueStore>,
    name: Result<QueueName, QueueInput>,
    ttl: Result<Ttl, InvalidInput>,
    label: Result<Label, InvalidInput>,
    max_attempts: Option<u32>,
    backoff: Backoff,
    max_hold: Option<Duration>,
    progress_within: Option<Duration>,
    clock: Arc<dyn Clock>,
    drift: DriftAllowance,
    observers: Vec<Arc<dyn Observer>>,
    told: Told,
    payload: PhantomData<fn(T) -> (T, C)>,
}

impl<T, C> QueueBuilder<T, C> {
    pub(super) fn new(store: Arc<dyn QueueStore>, name: &str) -> Self {
        Self {
            store,
            name: QueueName::new(name),
            ttl: Ttl::new(DEFAULT_TTL),
            label: Ok(Label::of_this_process()),
            max_attempts: Some(DEFAULT_ATTEMPTS),
            backoff: Backoff::default(),
            max_hold: None,
            progress_within: None,
            clock: Arc::new(SystemClock::new()),
            drift: DriftAllowance::default(),
            observers: Vec::new(),
            told: Told::default(),
            payload: PhantomData,
        }
    }

    /// How long a claim lasts at the store without a renewal: after a crash its item is
    /// free so late. Defaults to 30 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Ttl::new(ttl);
        self
    }

    /// Free text for people who look at who has an item. Defaults to program, process
    /// id and host.
    pub fn label(mut self, label: impl AsRef<str>) -> Self {
        self.label = Label::new(label);
        self
    }

    /// After so many attempts that failed, or that nobody ended, an item is buried.
    /// Defaults to 5.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Items are tried for ever.
    pub fn unlimited_attempts(mut self) -> Self {
        self.max_attempts = None;
        self
    }

    /// How long an item waits after an attempt that failed. Defaults to a second after
    /// the first, doubling up to five minutes.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// A claim is lost when it has been held for this long, so that a worker that hangs
    /// cannot keep its item for ever. Defaults to no limit.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.max_hold = Some(limit);
        self
    }

    /// A claim is lost when `progress` was not called on it for this long. Defaults to no
    /// such requirement.
    pub fn progress_within(mut self, limit: Duration) -> Self {
        self.progress_within = Some(limit);
        self
    }

    /// The clock by which claims are held. Defaults to the machine's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// What claims take off their TTL for drifting clocks. Defaults to 1 % plus 2 ms.
    pub fn drift_allowance(mut self, drift: DriftAllowance) -> Self {
        self.drift = drift;
        self
    }

    /// Somebody who is told of every event of its claims' leases. May be called
    /// repeatedly.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Somebody who is told of every answer of the store to a request for items, and of
    /// every request that failed: claims and workers wait for a store that is out of
    /// reach, and say nothing by themselves. Replaces the one before. Called where it
    /// happens: do not block.
    pub fn on_request(
        mut self,
        told: impl Fn(Result<(), &StoreError>) + Send + Sync + 'static,
    ) -> Self {
        self.told = Told::new(told);
        self
    }

    /// The queue's client. Sends nothing.
    ///
    /// # Errors
    /// [`QueueError::Input`] and [`QueueError::Invalid`], which name the limit.
    pub fn build(self) -> Result<Queue<T, C>, QueueError> {
        let (name, ttl, label) = (self.name?, self.ttl?, self.label?);
        let can = self.store.capabilities();
        let range = can.guarantees.ttl;
        if ttl.get() < range.min || ttl.get() > range.max {
            return Err(InvalidInput::TtlOutOfRange {
                ttl: ttl.get(),
                min: range.min,
                max: range.max,
            }
            .into());
        }
        if self.drift.validity(ttl).is_zero() {
            return Err(InvalidInput::NothingLeft {
                ttl: ttl.get(),
                allowance: self.drift.of(ttl),
            }
            .into());
        }
        let limits = [
            ("max_hold", self.max_hold),
            ("progress_within", self.progress_within),
        ];
        if let Some((option, _)) = limits.into_iter().find(|l| l.1 == Some(Duration::ZERO)) {
            return Err(InvalidInput::ZeroDuration { option }.into());
        }
        if self.max_attempts == Some(0) {
            return Err(QueueInput::NoAttempts.into());
        }
        let claims = Arc::new(ClaimLeases::new(
            Arc::clone(&self.store),
            name.clone(),
            Arc::clone(&self.clock),
        ));
        let backend: Arc<ClaimLeases> = Arc::clone(&claims);
        let mut leases = Leases::builder(backend)
            .clock(Arc::clone(&self.clock))
            .drift_allowance(self.drift)
            .ttl(ttl)
            .label(label.clone());
        for observer in self.observers {
            leases = leases.observer(move |event: &Event| observer.observe(event));
        }
        Ok(Queue::new(Arc::new(Inner {
            key: Key::new(format!("queue {name}"))?,
            store: self.store,
            name,
            can,
            leases: leases.build(),
            claims,
            clock: self.clock,
            ttl,
            label,
            max_attempts: self.max_attempts,
            backoff: self.backoff,
            max_hold: self.max_hold,
            progress_within: self.progress_within,
            told: self.told,
            turn: tokio::sync::Mutex::default(),
            closing: CancellationToken::new(),
            asking: watch::Sender::new(0),
        })))
    }
}

impl<T, C> fmt::Debug for QueueBuilder<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBuilder")
            .field("name", &self.name)
            .field("ttl", &self.ttl)
            .field("max_attempts", &self.max_attempts)
            .finish_non_exhaustive()
    }
}
