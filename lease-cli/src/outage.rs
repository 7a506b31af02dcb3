//! When to say that a store is out of reach, and that it is back: a store that
//! fails every other request must not fill the terminal.

use std::time::Duration;

use tokio::time::Instant;

/// A change sooner after the last notice than this is not worth another one.
const SETTLED: Duration = Duration::from_secs(1);

/// There is something to be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said;

/// What was last said of the store, and when.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    away: bool,
    said: Option<Instant>,
}

impl Outage {
    /// The store failed.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<Said> {
        self.change(true, now, false)
    }

    /// The store answered; `for_good` when what was asked for is done.
    pub(crate) fn answered(&mut self, now: Instant, for_good: bool) -> Option<Said> {
        self.change(false, now, for_good)
    }

    fn change(&mut self, away: bool, now: Instant, at_once: bool) -> Option<Said> {
        let fresh = self.said.is_some_and(|said| now - said < SETTLED);
        if self.away == away || (fresh && !at_once) {
            return None;
        }
        self.away = away;
        self.said = Some(now);
        Some(Said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_fails_every_other_time_is_told_of_once() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut outage = Outage::default();
        assert_eq!(outage.answered(at(0), false), None);
        assert_eq!(outage.failed(at(10)), Some(Said), "at once");
        for n in 1..40 {
            assert_eq!(outage.answered(at(20 * n), false), None);
            assert_eq!(outage.failed(at(20 * n + 10)), None);
        }
        assert_eq!(outage.answered(at(1_010), false), Some(Said));
        assert_eq!(outage.failed(at(1_500)), None);
        assert_eq!(outage.failed(at(2_010)), Some(Said));
        // Nothing comes after it that could say so.
        assert_eq!(outage.answered(at(2_020), true), Some(Said));
    }
}
