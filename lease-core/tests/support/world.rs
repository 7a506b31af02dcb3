//! One store, one clock, clients, and the record of their events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lease_core::{
    Clock, Error, Event, KeyState, Leases, LeasesBuilder, Lost, LostReason, MemoryStore, Moment,
    StoreRules,
};

use super::{Scripted, TestClock};

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub struct World {
    /// The store's clock, and unless said otherwise the holders'.
    pub clock: Arc<TestClock>,
    pub store: Scripted,
    pub events: Arc<Mutex<Vec<Event>>>,
    /// No two clients may draw the same owners.
    seed: AtomicU64,
}

impl World {
    pub fn new() -> Self {
        Self::with_rules(StoreRules::ALL)
    }

    /// A store that lacks some rule.
    pub fn with_rules(rules: StoreRules) -> Self {
        Self::on(TestClock::new(), rules)
    }

    /// A store on a clock of the caller's.
    pub fn on(clock: Arc<TestClock>, rules: StoreRules) -> Self {
        let shared: Arc<dyn Clock> = Arc::<TestClock>::clone(&clock);
        let memory = MemoryStore::broken(shared, secs(1), secs(600), rules);
        Self {
            store: Scripted::new(memory, Arc::clone(&clock)),
            clock,
            events: Arc::default(),
            seed: AtomicU64::new(7),
        }
    }

    pub fn builder(&self) -> LeasesBuilder {
        let events = Arc::clone(&self.events);
        let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&self.clock);
        Leases::builder(Arc::new(self.store.clone()))
            .clock(clock)
            .seed(self.seed.fetch_add(1, Ordering::Relaxed))
            .observer(move |event: &Event| events.lock().unwrap().push(event.clone()))
    }

    /// A client whose events are recorded.
    pub fn leases(&self) -> Leases {
        self.builder().build()
    }

    /// Another client of the same store: other owners, no record.
    pub fn other(&self) -> Leases {
        let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&self.clock);
        Leases::builder(Arc::new(self.store.clone()))
            .clock(clock)
            .seed(self.seed.fetch_add(1, Ordering::Relaxed))
            .build()
    }

    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    pub async fn look(&self, key: &str) -> KeyState {
        self.other().inspect(key).await.unwrap()
    }

    pub async fn is_free(&self, key: &str) -> bool {
        let state = self.look(key).await;
        state.holder.is_none() && state.blocked_for.is_none()
    }

    pub fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().clone()
    }

    /// The words of all events so far.
    pub fn words(&self) -> Vec<&'static str> {
        self.events().iter().map(|e| e.kind.as_str()).collect()
    }
}

/// Every kind of failure.
pub fn kinds() -> [lease_core::StoreErrorKind; 4] {
    use lease_core::StoreErrorKind::{InvalidInput, Refusing, Unavailable, UnknownOutcome};
    [Unavailable, UnknownOutcome, Refusing, InvalidInput]
}

/// The loss inside an error.
pub fn lost_of(error: Error) -> Lost {
    match error {
        Error::Lost(lost) => lost,
        other => panic!("expected a loss, got {other:?}"),
    }
}

/// Whether the deadline ended it.
pub fn is_unconfirmed(lost: &Lost) -> bool {
    matches!(lost.reason, LostReason::Unconfirmed { .. })
}
