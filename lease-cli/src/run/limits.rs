//! When a command must be told to stop, and when it must be gone.

use std::time::Duration;

use leases::{Clock, CrashRelease, Lease, Leases, LostCause, LostReason, Moment, SystemClock, Ttl};

/// Timers and schedulers are late: SIGKILL is sent this much before the
/// deadline, or a twentieth of the TTL before it when that is less.
const MARGIN: Duration = Duration::from_millis(20);

/// The times of one lease's command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Between SIGTERM and SIGKILL.
    kill_after: Duration,
    /// Between SIGKILL and the deadline.
    margin: Duration,
}

impl Limits {
    /// For a lease that is good for a TTL, or less where it ends with our session.
    pub(crate) fn of(leases: &Leases, ttl: Ttl, kill_after: Duration) -> Self {
        let good_for = match leases.guarantees().crash_release {
            CrashRelease::SessionLost { grace } => {
                Ttl::new(grace).map_or(ttl, |grace| ttl.min(grace))
            }
            _ => ttl,
        };
        Self::new(good_for, kill_after)
    }

    /// `kill_after` is cut to a third of the TTL: renewals start at a third,
    /// and need time for a second try before the command is told to stop.
    pub(crate) fn new(ttl: Ttl, kill_after: Duration) -> Self {
        Self {
            kill_after: kill_after.min(ttl.get() / 3),
            margin: MARGIN.min(ttl.get() / 20),
        }
    }

    /// How long before the deadline the command is told to stop.
    pub(crate) fn lead(&self) -> Duration {
        self.kill_after + self.margin
    }

    /// When a command that is told to stop now must be gone.
    pub(crate) fn kill_at(&self, now: Moment, deadline: Moment) -> Moment {
        let margin = u64::try_from(self.margin.as_nanos()).unwrap_or(u64::MAX);
        let last = Moment::from_nanos(deadline.as_nanos().saturating_sub(margin));
        now.after(self.kill_after).min(last)
    }
}

/// Until when nobody else can have the key, if that is still so after a loss.
pub(super) fn protected_until(lease: &Lease) -> Moment {
    match lease.check() {
        Ok(_) => lease.deadline(),
        Err(lost) => match lost.reason {
            // A revoked grant keeps the key blocked until it would have
            // expired, so that its holder can stop cleanly. (A fence that
            // frees the key at once has announced that it does not wait.)
            LostReason::Store(LostCause::Revoked) => lease.deadline(),
            _ => SystemClock::new().now(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kill_falls_before_the_deadline_whatever_was_asked_for() {
        let deadline = Moment::from_nanos(100_000_000_000);
        for ttl_ms in [50, 100, 1000, 30_000] {
            for kill_after_ms in [0, 1, 1000, 5000, 1_000_000] {
                let ttl = Ttl::new(Duration::from_millis(ttl_ms)).unwrap();
                let limits = Limits::new(ttl, Duration::from_millis(kill_after_ms));
                assert!(limits.lead() < ttl.get() / 2, "{limits:?}");
                let told =
                    Moment::from_nanos(deadline.as_nanos() - limits.lead().as_nanos() as u64);
                let kill_at = limits.kill_at(told, deadline);
                assert!(kill_at < deadline);
                assert_eq!(kill_at.since(told), limits.kill_after);
                // Told late: no time is added.
                assert!(limits.kill_at(deadline, deadline) < deadline);
            }
        }
    }
}
