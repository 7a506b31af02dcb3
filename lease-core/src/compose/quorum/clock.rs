//! What a node's tokens tell of its clock.

use std::time::Duration;

use tokio::time::Instant;

use crate::token::Token;

/// What was seen counts for this long at least, and for twice as long at most:
/// clocks run at different speeds, and some are set.
const WINDOW: Duration = Duration::from_secs(60);

/// No token is below its node's clock: of all that it named, the one that is least
/// ahead of the time that has passed here shows best where that clock stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeClock {
    /// Of this window and of the one before.
    seen: [Option<Seen>; 2],
    begun: Option<Instant>,
}

/// A token and when it came.
#[derive(Clone, Copy, Debug)]
struct Seen {
    token: Token,
    at: Instant,
}

impl Seen {
    /// What the token would be now, had it come from the clock.
    fn now(self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.at).as_micros();
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        self.token.get().saturating_add(since)
    }
}

impl NodeClock {
    pub(super) fn named(&mut self, token: Token, now: Instant) {
        match self.begun.map(|begun| now.saturating_duration_since(begun)) {
            Some(age) if age < WINDOW => {}
            age => {
                let last = self.seen[0].filter(|_| age.is_some_and(|age| age < WINDOW * 2));
                self.seen = [None, last];
                self.begun = Some(now);
            }
        }
        let this = &mut self.seen[0];
        if this.is_none_or(|least| token.get() < least.now(now)) {
            *this = Some(Seen { token, at: now });
        }
    }

    /// It is no later than this, in microseconds since its epoch.
    pub(super) fn at(&self, now: Instant) -> Option<u64> {
        self.seen.iter().flatten().map(|seen| seen.now(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: u64 = 1_800_000_000_000_000;

    fn token(us: u64) -> Token {
        Token::new(EPOCH + us).unwrap()
    }

    #[test]
    fn the_token_that_is_least_ahead_shows_the_clock() {
        let (mut clock, start) = (NodeClock::default(), Instant::now());
        let at = |us| start + Duration::from_micros(us);
        assert_eq!(clock.at(start), None);
        for (us, named) in [
            (0, 1_000_000),
            (500, 1_000_001),
            (900, 900),
            (2_000, 999_999),
        ] {
            clock.named(token(named), at(us));
        }
        assert_eq!(clock.at(at(5_000)), Some(EPOCH + 5_000));
    }

    #[test]
    fn a_clock_that_was_set_is_seen_after_a_while() {
        let (mut clock, start) = (NodeClock::default(), Instant::now());
        clock.named(token(0), start);
        // Ten seconds forwards.
        for second in 1..=120 {
            let now = start + Duration::from_secs(second);
            clock.named(token((second + 10) * 1_000_000), now);
        }
        let now = start + Duration::from_secs(121);
        assert_eq!(clock.at(now), Some(EPOCH + 131_000_000));
    }
}
