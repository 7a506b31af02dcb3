//! `Leases`: one application's view of one store.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures_util::stream::BoxStream;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::acquire::Acquire;
use crate::backend::{FenceWhen, KeyState, LeaseBackend};
use crate::clock::{Clock, SystemClock};
use crate::compose::Namespace;
use crate::error::{Error, InvalidInput, StoreError};
use crate::guarantees::{CrashRelease, Guarantees, WaiterOrder};
use crate::key::{Key, Label};
use crate::observe::{Observer, Observers};
use crate::queue::Lines;
use crate::renewal::Keeper;
use crate::retry::{Chance, LOOK_AGAIN, LOOK_AT_SESSION};
use crate::rules::HolderRules;
use crate::token::Token;
use crate::ttl::{DriftAllowance, Ttl};

/// What every lease of a client shares.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) backend: Arc<dyn LeaseBackend>,
    pub(crate) guarantees: Guarantees,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) drift: DriftAllowance,
    pub(crate) chance: Chance,
    pub(crate) observers: Observers,
    pub(crate) lines: Arc<Lines>,
    pub(crate) ttl: Ttl,
    pub(crate) label: Label,
    pub(crate) rules: HolderRules,
    pub(crate) closing: CancellationToken,
    /// How many acquisitions are under way.
    pub(crate) acquiring: watch::Sender<usize>,
    /// Numbers the leases of this client.
    pub(crate) count: AtomicU64,
}

impl Parts {
    /// After the loss of its session a holder's key is free after this, if its
    /// store has sessions.
    pub(crate) fn grace(&self) -> Option<Duration> {
        match self.guarantees.crash_release {
            CrashRelease::SessionLost { grace } if self.rules.signs_bound => Some(grace),
            _ => None,
        }
    }

    /// How long after its send a sign of life is good for: the grace without the
    /// allowance for drift.
    pub(crate) fn sign_validity(&self) -> Option<Duration> {
        let grace = self.grace()?;
        if !self.rules.drift_allowance {
            return Some(grace);
        }
        // Of one that is shorter than any TTL nothing is left.
        Some(Ttl::new(grace).map_or(Duration::ZERO, |grace| self.drift.validity(grace)))
    }

    /// How long after its send a request can make a lease of this TTL good.
    pub(crate) fn validity(&self, ttl: Ttl) -> Duration {
        let valid = self.drift.validity(ttl);
        self.sign_validity().map_or(valid, |sign| valid.min(sign))
    }

    /// Whether the store serves waiters of different clients in order.
    pub(crate) fn keeps_order(&self) -> bool {
        self.guarantees.waiter_order == WaiterOrder::Fifo
    }

    /// A waiter looks again after this long, whatever it was told.
    pub(crate) fn look_again(&self) -> Duration {
        match self.guarantees.crash_release {
            // That is when the store looks whether the holder's session is gone.
            CrashRelease::SessionLost { .. } => LOOK_AT_SESSION,
            CrashRelease::Ttl => LOOK_AGAIN,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Inner {
    parts: Arc<Parts>,
    pub(crate) keeper: Keeper,
}

impl Deref for Inner {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

/// A client of one store: acquires leases and keeps them.
///
/// Cheap to clone; clones share the local queue and the renewal loop. Make one
/// per process and store. Must be used within a tokio runtime with time
/// enabled.
#[derive(Clone, Debug)]
pub struct Leases {
    inner: Arc<Inner>,
}

impl Leases {
    /// A client with the defaults of [`LeasesBuilder`].
    #[must_use]
    pub fn new(backend: Arc<dyn LeaseBackend>) -> Self {
        LeasesBuilder::new(backend).build()
    }

    /// A client with settings of your own.
    pub fn builder(backend: Arc<dyn LeaseBackend>) -> LeasesBuilder {
        LeasesBuilder::new(backend)
    }

    /// Begins an acquisition of `key`. Nothing is sent before
    /// [`acquire`](Acquire::acquire) or [`try_acquire`](Acquire::try_acquire),
    /// which also report a key that is not valid.
    pub fn lease<K>(&self, key: K) -> Acquire
    where
        K: TryInto<Key>,
        K::Error: Into<InvalidInput>,
    {
        Acquire::new(Arc::clone(&self.inner), key.try_into().map_err(Into::into))
    }

    /// Who holds `key`, and its high-water mark.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::Store`].
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn inspect<K>(&self, key: K) -> Result<KeyState, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<InvalidInput>,
    {
        let key = key.try_into().map_err(Into::into)?;
        Ok(self.inner.backend.inspect(&key).await?)
    }

    /// Every key that starts with `prefix` and was ever granted or fenced.
    ///
    /// # Errors
    /// As items of the stream, which ends after one.
    ///
    /// # Cancel safety
    /// Dropping the stream ends it.
    #[must_use]
    pub fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.inner.backend.list(prefix)
    }

    /// Raises the mark of `key` to at least `at_least`: later grants are above
    /// it, a live grant below it is revoked. Returns the mark.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::Store`].
    ///
    /// # Cancel safety
    /// May or may not have taken effect; repeating it is safe.
    pub async fn fence<K>(&self, key: K, at_least: Token, when: FenceWhen) -> Result<Token, Error>
    where
        K: TryInto<Key>,
        K::Error: Into<InvalidInput>,
    {
        let key = key.try_into().map_err(Into::into)?;
        crate::backend::check_fence(at_least)?;
        Ok(self.inner.backend.fence(&key, at_least, when).await?)
    }

    /// What the store promises.
    #[must_use]
    pub fn guarantees(&self) -> &Guarantees {
        &self.inner.guarantees
    }

    /// The store itself, for operations that need no handle.
    #[must_use]
    pub fn backend(&self) -> &Arc<dyn LeaseBackend> {
        &self.inner.backend
    }

    /// The clock by which this client judges its leases.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.inner.clock
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Stops this client and its clones, within `limit`.
    ///
    /// Waiters end with [`Error::Cancelled`], and nothing is acquired any
    /// more. Every held lease is lost at once for the reason *shutdown*, so
    /// that its work stops, and is released as soon as its handle is dropped;
    /// those whose handle stays are released after half of `limit` all the
    /// same. Returns when everything is released and cleaned up, or when
    /// `limit` is over (within a tokio runtime: elsewhere there are no timers).
    ///
    /// # Cancel safety
    /// The client is stopped from the first poll on; call it again to wait for
    /// the rest.
    pub async fn shutdown(&self, limit: Duration) -> ShutdownReport {
        let inner = &self.inner;
        let clock = &inner.clock;
        let start = clock.now();
        // Outside of a runtime there is no limit to keep.
        let timers = Handle::try_current().is_ok();
        inner.closing.cancel();
        inner.keeper.lose_all();
        let settled = || async move {
            // Each leaves at its next poll, and what it sent is abandoned.
            let mut acquiring = inner.acquiring.subscribe();
            let _ = acquiring.wait_for(|count| *count == 0).await;
            inner.keeper.settled().await;
        };
        let settled_by = |after: Duration| async move {
            tokio::select! {
                biased;
                () = settled() => true,
                () = clock.sleep_until(start.after(after)), if timers => false,
            }
        };
        if !settled_by(limit / 2).await {
            inner.keeper.release_all();
        }
        ShutdownReport {
            settled: settled_by(limit).await,
        }
    }
}

/// How a shutdown ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Everything was released and cleaned up in time. Otherwise what is left
    /// is free at its expiry.
    pub settled: bool,
}

/// Settings of a [`Leases`].
#[derive(Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct LeasesBuilder {
    backend: Arc<dyn LeaseBackend>,
    clock: Arc<dyn Clock>,
    drift: DriftAllowance,
    ttl: Option<Ttl>,
    label: Option<Label>,
    observers: Vec<DynObserver>,
    seed: Option<u64>,
    rules: HolderRules,
}

struct DynObserver(Arc<dyn Observer>);

impl std::fmt::Debug for DynObserver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observer")
    }
}

/// The TTL of a lease that was asked for without one.
const DEFAULT_TTL: Duration = Duration::from_secs(30);

impl LeasesBuilder {
    fn new(backend: Arc<dyn LeaseBackend>) -> Self {
        Self {
            backend,
            clock: Arc::new(SystemClock::new()),
            drift: DriftAllowance::default(),
            ttl: None,
            label: None,
            observers: Vec::new(),
            seed: None,
            rules: HolderRules::ALL,
        }
    }

    /// The TTL of leases that are asked for without one. Defaults to 30 s.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The label of leases that are asked for without one. Defaults to
    /// program, process id and host.
    pub fn label(mut self, label: Label) -> Self {
        self.label = Some(label);
        self
    }

    /// What holders take off their TTL for drifting clocks. Defaults to 1 %
    /// plus 2 ms.
    pub fn drift_allowance(mut self, drift: DriftAllowance) -> Self {
        self.drift = drift;
        self
    }

    /// The clock. Defaults to the machine's, which also runs while it is
    /// suspended.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Somebody who is told of every event. May be called repeatedly.
    /// `tracing` is always told.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(DynObserver(Arc::new(observer)));
        self
    }

    /// Takes everything random from one seed, owners included. For tests only:
    /// owners that can be guessed prove nothing, and two clients of one seed are
    /// taken for one.
    #[cfg(feature = "broken-rules")]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Takes a rule of the holder's side out, to show that it is needed.
    #[cfg(feature = "broken-rules")]
    pub fn broken_rules(mut self, rules: HolderRules) -> Self {
        self.rules = rules;
        self
    }

    /// The client. Sends nothing.
    #[must_use]
    pub fn build(self) -> Leases {
        let guarantees = self.backend.guarantees();
        let others = self.observers.into_iter().map(|o| o.0).collect();
        let seeded = self.seed.map(Chance::seeded);
        let parts = Arc::new(Parts {
            observers: Observers::new(&guarantees.store, others),
            guarantees,
            backend: self.backend,
            clock: self.clock,
            drift: self.drift,
            chance: seeded.unwrap_or_else(Chance::from_system),
            lines: Arc::new(Lines::default()),
            ttl: self.ttl.unwrap_or_else(default_ttl),
            label: self.label.unwrap_or_else(Label::of_this_process),
            rules: self.rules,
            closing: CancellationToken::new(),
            acquiring: watch::Sender::new(0),
            count: AtomicU64::new(0),
        });
        Leases {
            inner: Arc::new(Inner {
                keeper: Keeper::new(Arc::clone(&parts)),
                parts,
            }),
        }
    }

    /// A client whose keys all live below `namespace`; see [`Namespace`].
    ///
    /// # Errors
    /// [`InvalidInput`] when `namespace` is not a valid part of a key.
    pub fn namespace(mut self, namespace: &str) -> Result<Self, InvalidInput> {
        self.backend = Arc::new(Namespace::new(self.backend, namespace)?);
        Ok(self)
    }
}

fn default_ttl() -> Ttl {
    Ttl::new(DEFAULT_TTL).unwrap_or(Ttl::MIN)
}
