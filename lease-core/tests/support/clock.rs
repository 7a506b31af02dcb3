//! A clock over tokio's paused time that can run fast or slow and jump.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lease_core::{Clock, Moment};
use tokio::time::Instant;

/// Counts from one second, at `1 + ppm / 10^6` times the speed of tokio's
/// clock, plus what it was made to jump.
///
/// A jump wakes no sleeper: timers are late, as after a suspend or while
/// something blocks the executor.
#[derive(Debug)]
pub struct TestClock {
    start: Instant,
    ppm: i64,
    jumped: AtomicU64,
}

impl TestClock {
    pub fn new() -> Arc<Self> {
        Self::at_rate(0)
    }

    /// A clock that gains `ppm` microseconds a second.
    pub fn at_rate(ppm: i64) -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            ppm,
            jumped: AtomicU64::new(0),
        })
    }

    /// Moves the clock forward behind the timers' backs.
    pub fn jump(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap();
        self.jumped.fetch_add(by, Ordering::SeqCst);
    }

    fn scaled(nanos: u128, from: i64, to: i64) -> u128 {
        let share = |ppm: i64| u128::try_from(1_000_000 + ppm).unwrap();
        (nanos * share(to)).div_ceil(share(from))
    }
}

#[async_trait::async_trait]
impl Clock for TestClock {
    fn now(&self) -> Moment {
        let run = (Instant::now() - self.start).as_nanos();
        let run = u64::try_from(Self::scaled(run, 0, self.ppm)).unwrap();
        Moment::from_nanos(1_000_000_000 + run + self.jumped.load(Ordering::SeqCst))
    }

    async fn sleep_until(&self, until: Moment) {
        if until == Moment::NEVER {
            std::future::pending::<()>().await;
        }
        loop {
            let left = until.since(self.now()).as_nanos();
            if left == 0 {
                return;
            }
            let left = u64::try_from(Self::scaled(left, self.ppm, 0)).unwrap();
            tokio::time::sleep(Duration::from_nanos(left)).await;
        }
    }
}
