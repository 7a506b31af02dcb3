//! One node: a store that goes away, comes back empty, and keeps its quarantine.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{Clock, MemoryStore, Moment};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::time::Instant;

use super::history::MAX_TTL;

/// Everything random, from one seed.
#[derive(Clone, Debug)]
pub(super) struct Dice(Arc<Mutex<StdRng>>);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    pub(super) fn below(&self, n: u64) -> u64 {
        self.0.lock().unwrap().random_range(0..n)
    }

    pub(super) fn ms(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// Tokio's paused time.
#[derive(Debug)]
pub(super) struct TrueClock(pub(super) Instant);

#[async_trait]
impl Clock for TrueClock {
    fn now(&self) -> Moment {
        Moment::START.after(self.0.elapsed())
    }

    async fn sleep_until(&self, until: Moment) {
        tokio::time::sleep(until.since(self.now())).await;
    }
}

#[derive(Debug)]
pub(super) struct Server {
    clock: Arc<dyn Clock>,
    /// When its clock started after the epoch: clocks differ.
    epoch: Duration,
    state: Mutex<State>,
    /// How many times as long as the others it always takes.
    slower: AtomicU32,
}

#[derive(Debug)]
struct State {
    store: MemoryStore,
    quarantine_until: Instant,
    down_until: Instant,
    slow_until: Instant,
}

impl Server {
    pub(super) fn new(clock: Arc<dyn Clock>, dice: &Dice) -> Self {
        let epoch = Duration::from_secs(1_800_000_000) + dice.ms(0, 400);
        let now = Instant::now();
        Self {
            state: Mutex::new(State {
                store: MemoryStore::with_clock(Arc::clone(&clock), epoch),
                quarantine_until: now,
                down_until: now,
                slow_until: now,
            }),
            clock,
            epoch,
            slower: AtomicU32::new(1),
        }
    }

    pub(super) fn be_slower(&self, times: u32) {
        self.slower.store(times, Ordering::Relaxed);
    }

    pub(super) fn slower(&self) -> u32 {
        self.slower.load(Ordering::Relaxed)
    }

    pub(super) fn store(&self) -> MemoryStore {
        self.state.lock().unwrap().store.clone()
    }

    pub(super) fn quarantine(&self) -> Option<Duration> {
        let until = self.state.lock().unwrap().quarantine_until;
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    pub(super) fn is_down(&self) -> bool {
        Instant::now() < self.state.lock().unwrap().down_until
    }

    pub(super) fn is_slow(&self) -> bool {
        Instant::now() < self.state.lock().unwrap().slow_until
    }

    pub(super) fn go_down(&self, time: Duration) {
        self.state.lock().unwrap().down_until = Instant::now() + time;
    }

    pub(super) fn be_slow(&self, time: Duration) {
        self.state.lock().unwrap().slow_until = Instant::now() + time;
    }

    pub(super) fn restart_empty(&self) {
        let mut state = self.state.lock().unwrap();
        state.store = MemoryStore::with_clock(Arc::clone(&self.clock), self.epoch);
        // Longer than clocks differ, too.
        state.quarantine_until = Instant::now() + MAX_TTL + Duration::from_millis(500);
    }
}
