//! Clocks: true time is tokio's paused clock; each client's runs at a speed of
//! its own, and its timers may fire late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{Clock, Moment};
use rand::RngExt;

use crate::world::Dice;

/// True time, which the store's clock shows.
#[derive(Debug)]
pub(crate) struct TrueClock {
    start: tokio::time::Instant,
    /// When it was asked last, and how often since it last moved.
    last: AtomicU64,
    asked: AtomicU64,
    stood_still: AtomicBool,
}

/// More often than that in one moment is busy polling, which would never end
/// here, since time moves only when nobody has anything to do.
const ASKED_AT_ONCE: u64 = 100_000;

impl TrueClock {
    /// Whether somebody polled without ever waiting.
    pub(crate) fn stood_still(&self) -> bool {
        self.stood_still.load(Ordering::Relaxed)
    }

    pub(crate) fn start() -> Self {
        Self {
            start: tokio::time::Instant::now(),
            last: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            stood_still: AtomicBool::new(false),
        }
    }
}

#[async_trait]
impl Clock for TrueClock {
    fn now(&self) -> Moment {
        let now = Moment::START.after(self.start.elapsed());
        if self.last.swap(now.as_nanos(), Ordering::Relaxed) != now.as_nanos() {
            self.asked.store(0, Ordering::Relaxed);
        }
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if asked >= ASKED_AT_ONCE {
            self.stood_still.store(true, Ordering::Relaxed);
            // The only way to end a loop that awaits nothing.
            panic!("busy polling: time stands still");
        }
        now
    }

    async fn sleep_until(&self, until: Moment) {
        while self.now() < until {
            tokio::time::sleep(until.since(self.now())).await;
        }
    }
}

/// A client's clock: `ppm` millionths too fast (or, negative, too slow).
#[derive(Debug)]
pub(crate) struct DriftingClock {
    pub(crate) truth: Arc<TrueClock>,
    pub(crate) ppm: i64,
    /// In how many of a hundred sleeps the timer fires late: a machine that
    /// was suspended, an executor that was blocked.
    pub(crate) late_percent: u32,
    pub(crate) dice: Dice,
}

#[async_trait]
impl Clock for DriftingClock {
    fn now(&self) -> Moment {
        let truth = i128::from(self.truth.now().as_nanos());
        let shown = truth + truth * i128::from(self.ppm) / 1_000_000;
        Moment::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    async fn sleep_until(&self, until: Moment) {
        while self.now() < until {
            let left = until.since(self.now()).as_secs_f64();
            let left = left / (1.0 + self.ppm as f64 / 1e6);
            let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::from_secs(1 << 32));
            tokio::time::sleep(left.max(Duration::from_micros(1))).await;
        }
        let late = self.dice.roll(|r| {
            (r.random_range(0..100) < self.late_percent).then(|| r.random_range(1..2_000))
        });
        if let Some(late_ms) = late {
            tokio::time::sleep(Duration::from_millis(late_ms)).await;
        }
    }
}
