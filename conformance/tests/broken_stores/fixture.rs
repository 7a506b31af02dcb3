//! A fixture for stores with one fault, and for faultless ones with hooks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lease_conformance::{Fixture, FixtureError, Restart, Store};
use lease_core::{
    Guarantees, LeaseBackend, MemoryStore, StoreRules, SystemClock, TOMBSTONE_RETENTION,
};

use crate::fault::Fault;
use crate::faulty::{Faulty, Shared};

/// What a store with hooks says of its tombstones.
pub(crate) const SHORT_RETENTION: Duration = Duration::from_secs(10);

/// Which store is opened for each case.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) rules: StoreRules,
    pub(crate) retention: Duration,
    pub(crate) fault: Fault,
    pub(crate) claims: fn(Guarantees) -> Guarantees,
    /// Tokens follow the wall clock.
    pub(crate) clock_tokens: bool,
    /// Whether the fixture offers its hooks.
    pub(crate) hooks: bool,
}

impl Plan {
    /// The reference store as it is.
    pub(crate) fn faultless() -> Self {
        Self {
            rules: StoreRules::ALL,
            retention: TOMBSTONE_RETENTION,
            fault: Fault::None,
            claims: |claims| claims,
            clock_tokens: true,
            hooks: false,
        }
    }

    pub(crate) fn fault(fault: Fault) -> Self {
        Self {
            fault,
            ..Self::faultless()
        }
    }

    /// The reference store without one rule.
    pub(crate) fn without(take_out: fn(&mut StoreRules)) -> Self {
        let mut plan = Self::faultless();
        take_out(&mut plan.rules);
        plan
    }
}

#[async_trait]
impl Fixture for Plan {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        let epoch = if self.clock_tokens {
            // The clock of the machine started long after the epoch.
            let clock = SystemClock::new();
            let since_start = lease_core::Clock::now(&clock).since(lease_core::Moment::START);
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
            now.saturating_sub(since_start)
        } else {
            Duration::ZERO
        };
        let clock = Arc::new(SystemClock::new());
        let inner = MemoryStore::broken(clock, epoch, self.retention, self.rules);
        let claims = (self.claims)(inner.guarantees());
        Ok(Box::new(FaultyStore {
            plan: self.clone(),
            shared: Shared {
                inner,
                fault: self.fault,
                claims,
                grants: Arc::new(Mutex::new(HashMap::new())),
            },
            restarted: Mutex::new(None),
        }))
    }
}

struct FaultyStore {
    plan: Plan,
    shared: Shared,
    /// The empty store that came back from a restart.
    restarted: Mutex<Option<MemoryStore>>,
}

#[async_trait]
impl Store for FaultyStore {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let mut shared = self.shared.clone();
        let restarted = self.restarted.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(empty) = &*restarted {
            shared.inner = empty.clone();
        }
        Ok(Arc::new(Faulty::new(&shared)))
    }

    fn tombstone_retention(&self) -> Option<Duration> {
        self.plan.hooks.then_some(SHORT_RETENTION)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        self.plan.hooks.then_some(self as &dyn Restart)
    }
}

#[async_trait]
impl Restart for FaultyStore {
    async fn restart(&self) -> Result<(), FixtureError> {
        if self.plan.fault == Fault::LosesDataOnRestart {
            let clock = Arc::new(SystemClock::new());
            let empty = MemoryStore::with_clock(clock, Duration::ZERO);
            *self.restarted.lock().unwrap_or_else(|e| e.into_inner()) = Some(empty);
        }
        Ok(())
    }
}
