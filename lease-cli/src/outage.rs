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
    /// Whether the store's latest word was an answer.
    answers: bool,
    /// Somebody waits until the end of the outage is due.
    awaited: bool,
}

impl Outage {
    /// The store failed.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<Said> {
        self.answers = false;
        self.change(true, now, false)
    }

    /// The store answered; `for_good` when what was asked for is done.
    pub(crate) fn answered(&mut self, now: Instant, for_good: bool) -> Option<Said> {
        self.answers = true;
        self.change(false, now, for_good)
    }

    /// When to say that it is back, if it has just answered and that was too soon to
    /// say: the next answer may be long in coming. Whoever is told asks
    /// [then](Self::due); nobody else is told meanwhile.
    pub(crate) fn due_at(&mut self) -> Option<Instant> {
        if !self.away || !self.answers || self.awaited {
            return None;
        }
        self.awaited = true;
        self.said.map(|said| said + SETTLED)
    }

    /// It is the time that [`due_at`](Self::due_at) gave.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Said> {
        self.awaited = false;
        match self.answers {
            true => self.change(false, now, false),
            false => None,
        }
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

    #[test]
    fn an_answer_that_came_too_soon_to_be_told_is_told_in_a_second() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut outage = Outage::default();
        assert_eq!(outage.failed(at(10)), Some(Said));
        assert_eq!(outage.due_at(), None, "it is away");
        assert_eq!(outage.answered(at(200), false), None);
        assert_eq!(outage.due_at(), Some(at(1_010)));
        assert_eq!(outage.answered(at(300), false), None);
        assert_eq!(outage.due_at(), None, "somebody waits for it");
        assert_eq!(outage.due(at(1_010)), Some(Said));
        assert_eq!(outage.due_at(), None);
        // It has gone away again meanwhile.
        assert_eq!(outage.failed(at(3_000)), Some(Said));
        assert_eq!(outage.answered(at(3_100), false), None);
        assert_eq!(outage.due_at(), Some(at(4_000)));
        assert_eq!(outage.failed(at(3_900)), None);
        assert_eq!(outage.due(at(4_000)), None);
        // The next answer is told at once.
        assert_eq!(outage.answered(at(4_100), false), Some(Said));
        assert_eq!(outage.due_at(), None);
    }
}
