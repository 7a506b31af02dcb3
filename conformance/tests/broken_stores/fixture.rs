//! A fixture for stores with one fault, and for faultless ones with hooks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use lease_conformance::{
    Fixture, FixtureError, LoseData, Network, Pause, Restart, Spoiling, Store,
};
use lease_core::{
    Guarantees, LeaseBackend, MemoryStore, StoreRules, SystemClock, TOMBSTONE_RETENTION,
};
use lease_queue::{KeyedLeases, MemoryQueues, QueueName, QueueRules};

use crate::fault::Fault;
use crate::faulty::{Faulty, Shared};
use crate::remote::{Remote, World};

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
    /// The reference store of queues with these rules, in place of that of leases.
    pub(crate) in_line: Option<QueueRules>,
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
            in_line: None,
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

    /// The reference store of queues, for leases.
    pub(crate) fn in_line() -> Self {
        Self {
            in_line: Some(QueueRules::ALL),
            ..Self::faultless()
        }
    }

    /// The same without one rule.
    pub(crate) fn in_line_without(take_out: fn(&mut QueueRules)) -> Self {
        let mut plan = Self::in_line();
        plan.in_line.iter_mut().for_each(take_out);
        plan
    }

    /// How long before its clock's start the epoch was.
    fn epoch(&self) -> Result<Duration, FixtureError> {
        if !self.clock_tokens {
            return Ok(Duration::ZERO);
        }
        // The clock of the machine started long after the epoch.
        let clock = SystemClock::new();
        let since_start = lease_core::Clock::now(&clock).since(lease_core::Moment::START);
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        Ok(now.saturating_sub(since_start))
    }

    /// An empty store.
    fn memory(&self) -> Result<MemoryStore, FixtureError> {
        let clock = Arc::new(SystemClock::new());
        Ok(MemoryStore::broken(
            clock,
            self.epoch()?,
            self.retention,
            self.rules,
        ))
    }
}

#[async_trait]
impl Fixture for Plan {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        if let Some(rules) = self.in_line {
            let clock = Arc::new(SystemClock::new());
            let store = MemoryQueues::broken(clock, self.epoch()?, rules);
            return Ok(Box::new(Queues(store)));
        }
        let inner = self.memory()?;
        let claims = (self.claims)(inner.guarantees());
        Ok(Box::new(FaultyStore {
            plan: self.clone(),
            shared: Shared {
                inner: Arc::new(Mutex::new(inner)),
                fault: self.fault,
                claims,
                grants: Arc::new(Mutex::new(HashMap::new())),
            },
            world: Arc::new(World::default()),
        }))
    }
}

struct Queues(MemoryQueues);

#[async_trait]
impl Store for Queues {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let store = Arc::new(self.0.clone());
        Ok(Arc::new(KeyedLeases::new(store, QueueName::new("leases")?)))
    }
}

struct FaultyStore {
    plan: Plan,
    shared: Shared,
    world: Arc<World>,
}

impl FaultyStore {
    fn hook<T>(&self, hook: T) -> Option<T> {
        self.plan.hooks.then_some(hook)
    }

    fn replace(&self, inner: MemoryStore) {
        *self.shared.inner.lock().unwrap_or_else(|e| e.into_inner()) = inner;
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let faulty = Faulty::new(&self.shared);
        if !self.plan.hooks {
            return Ok(Arc::new(faulty));
        }
        let (world, fault) = (Arc::clone(&self.world), self.plan.fault);
        Ok(Arc::new(Remote::new(faulty, world, fault)))
    }

    fn tombstone_retention(&self) -> Option<Duration> {
        self.hook(SHORT_RETENTION)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        self.hook(self as &dyn Restart)
    }

    fn lose_data(&self) -> Option<&dyn LoseData> {
        self.hook(self as &dyn LoseData)
    }

    fn pause(&self) -> Option<&dyn Pause> {
        self.hook(self as &dyn Pause)
    }

    fn network(&self) -> Option<&dyn Network> {
        self.hook(self.world.as_ref() as &dyn Network)
    }

    fn spoiling(&self) -> Option<&dyn Spoiling> {
        self.hook(self.world.as_ref() as &dyn Spoiling)
    }
}

/// An empty store whose tokens begin anew.
fn beginning() -> MemoryStore {
    let clock = Arc::new(SystemClock::new());
    MemoryStore::with_clock(clock, Duration::ZERO)
}

#[async_trait]
impl Restart for FaultyStore {
    async fn restart(&self) -> Result<(), FixtureError> {
        if self.plan.fault == Fault::LosesDataOnRestart {
            self.replace(beginning());
        }
        Ok(())
    }
}

#[async_trait]
impl LoseData for FaultyStore {
    async fn lose_data(&self) -> Result<(), FixtureError> {
        self.replace(match self.plan.fault {
            Fault::LosesDataOnRestart => beginning(),
            _ => self.plan.memory()?,
        });
        // Only a store that claims so much keeps a quarantine.
        let keeps = self.shared.claims.exclusion_survives.data_loss;
        if keeps && self.plan.fault != Fault::SkipsQuarantine {
            self.world.quarantine();
        }
        Ok(())
    }
}

#[async_trait]
impl Pause for FaultyStore {
    async fn pause(&self) -> Result<(), FixtureError> {
        if self.plan.fault == Fault::ForgetsInPause {
            self.replace(self.plan.memory()?);
        }
        self.world.pause(true);
        Ok(())
    }

    async fn resume(&self) -> Result<(), FixtureError> {
        self.world.pause(false);
        Ok(())
    }
}
