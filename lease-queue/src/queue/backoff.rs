//! How long an item waits after an attempt that failed.

use std::time::Duration;

use lease_core::Owner;

use crate::store::MAX_DELAY;

/// Exponential backoff with jitter: `first` after the first attempt, twice as long after
/// each further one, up to `most`. Half of it is certain, the rest is chance, so that
/// items which failed together are not tried together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
}

impl Backoff {
    /// No wait at all.
    pub const NONE: Self = Self {
        first: Duration::ZERO,
        most: Duration::ZERO,
    };

    /// From `first` to `most`, each cut to what a store takes.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        let first = first.min(MAX_DELAY);
        Self {
            first,
            most: most.min(MAX_DELAY).max(first),
        }
    }

    /// The wait after this attempt, counted from 1.
    #[must_use]
    pub fn after(&self, attempt: u32) -> Duration {
        let full = self.full(attempt);
        full / 2 + (full / 2).mul_f64(fraction())
    }

    fn full(&self, attempt: u32) -> Duration {
        let doubled = attempt.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doubled).min(self.most)
    }
}

impl Default for Backoff {
    /// A second to five minutes.
    fn default() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_secs(300))
    }
}

/// From 0 to 1. Jitter must not fail: without randomness there is none.
fn fraction() -> f64 {
    let bytes = Owner::random().map_or([0; 16], |random| *random.as_bytes());
    f64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_to_its_limit_and_never_overflows() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
        for (attempt, due) in [
            (0, 1),
            (1, 1),
            (2, 2),
            (3, 4),
            (4, 8),
            (5, 10),
            (u32::MAX, 10),
        ] {
            let due = Duration::from_secs(due);
            let wait = backoff.after(attempt);
            assert!(wait >= due / 2 && wait <= due, "{attempt}: {wait:?}");
        }
        assert_eq!(Backoff::NONE.after(7), Duration::ZERO);
        let wide = Backoff::new(Duration::MAX, Duration::ZERO);
        assert!(wide.after(u32::MAX) <= MAX_DELAY);
    }
}
