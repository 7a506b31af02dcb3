//! The clock as a dependency.
//!
//! A [`Moment`] is an instant on one process's own clock. It is never compared
//! with anybody else's, and has nothing to do with the wall clock: stepping
//! that one moves no deadline.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

/// An instant on one [`Clock`], in nanoseconds since that clock's own start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The start of the clock.
    pub const START: Self = Self(0);
    /// Later than everything.
    pub const NEVER: Self = Self(u64::MAX);

    /// From nanoseconds since the clock's start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// `by` later; [`NEVER`](Self::NEVER) when that is past the end of time.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(by))
    }

    /// How long from `earlier` to here; zero when it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Tells the time and waits for it.
///
/// # What an implementer must keep
/// * `now` never goes backwards and counts the time that the machine was
///   suspended, or a holder may believe in a lease that the store has given
///   away.
/// * `sleep_until` may wake late, never early.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The present moment. Cheap: it is read before every guarded write.
    fn now(&self) -> Moment;

    /// Returns once `until` has come.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    async fn sleep_until(&self, until: Moment);
}

/// How long [`SystemClock`] trusts a runtime's timer, which stands still while
/// the machine is suspended, before it looks at the real time again.
const SLICE: Duration = Duration::from_secs(1);

/// The machine's clock that also runs while it is suspended:
/// `CLOCK_BOOTTIME` on Linux, the monotonic clock elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock(());

impl SystemClock {
    /// The clock of this machine.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

#[async_trait]
impl Clock for SystemClock {
    #[cfg(target_os = "linux")]
    fn now(&self) -> Moment {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let (secs, nanos) = (t.tv_sec.max(0) as u64, t.tv_nsec.max(0) as u64);
        Moment(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> Moment {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        Moment::START.after(START.get_or_init(Instant::now).elapsed())
    }

    async fn sleep_until(&self, until: Moment) {
        if until == Moment::NEVER {
            // Not a wake-up a second for each of those who wait for ever.
            std::future::pending::<()>().await;
        }
        loop {
            let left = until.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(SLICE)).await;
        }
    }
}

/// A clock that a test moves by hand.
///
/// Sleepers wake when [`advance`](Self::advance) passes their moment; nothing
/// else makes it move.
#[derive(Debug)]
pub struct ManualClock {
    now: watch::Sender<Moment>,
    // `watch` would let two concurrent `advance`s lose one another's step.
    step: Mutex<()>,
}

impl ManualClock {
    /// A clock that stands at one second past its start.
    #[must_use]
    pub fn new() -> Self {
        Self {
            now: watch::channel(Moment::from_nanos(1_000_000_000)).0,
            step: Mutex::new(()),
        }
    }

    /// Moves the clock forward and wakes those whose moment has come.
    pub fn advance(&self, by: Duration) {
        let _step = self.step.lock().unwrap_or_else(|e| e.into_inner());
        self.now.send_modify(|now| *now = now.after(by));
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Moment {
        *self.now.borrow()
    }

    async fn sleep_until(&self, until: Moment) {
        let mut now = self.now.subscribe();
        // The sender lives as long as `self`: this cannot fail.
        let _ = now.wait_for(|now| *now >= until).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn moments_saturate() {
        let m = Moment::from_nanos(5);
        assert_eq!(m.after(Duration::MAX), Moment::NEVER);
        assert_eq!(m.since(Moment::NEVER), Duration::ZERO);
        assert_eq!(m.after(Duration::from_nanos(7)).since(m).as_nanos(), 7);
    }

    #[tokio::test]
    async fn a_manual_clock_wakes_its_sleepers_and_only_in_time() {
        let clock = Arc::new(ManualClock::new());
        let until = clock.now().after(Duration::from_secs(2));
        let sleeper = tokio::spawn({
            let clock = Arc::clone(&clock);
            async move {
                clock.sleep_until(until).await;
                clock.now()
            }
        });
        clock.advance(Duration::from_secs(1));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_secs(1));
        assert_eq!(sleeper.await.unwrap(), until);
    }

    #[tokio::test]
    async fn the_system_clock_moves_forward() {
        let clock = SystemClock::new();
        let before = clock.now();
        clock
            .sleep_until(before.after(Duration::from_millis(5)))
            .await;
        assert!(clock.now().since(before) >= Duration::from_millis(5));
    }
}
