//! The token that nodes which named different ones are brought to.
//!
//! Tokens follow the nodes' clocks. A node that answers later than the others
//! names a higher one, and cannot go back to a lower one: so the token is ahead
//! of all that were granted, by no less than the round has taken so far.
//!
//! It is a whole number of large steps: copies of one acquire that run at the
//! same time come to the same token, whichever majority each of them heard first.
//!
//! A token that is ahead of all clocks already follows one that was agreed on:
//! nothing is added to it, since no node can name a higher one. So tokens stay
//! ahead by what is added once, and by that once more for each client that does not
//! know the nodes' clocks yet.

use std::time::Duration;

use crate::token::Token;

/// A second: long beside what the tokens of two majorities differ by.
const STEP_US: u64 = 1 << 20;
/// A token is ahead by half a second at least, and at most by one second and a
/// step. Copies of one acquire whose rounds took less are ahead by the same.
const LEAST: Duration = Duration::from_micros(STEP_US / 2);
const MOST: Duration = Duration::from_secs(1);
/// A token no more than this above a whole step follows one that was agreed on,
/// whatever is known of the clocks; that a clock stands there is hardly possible.
/// Clients that know nothing yet, each a new process, take longer for so many than
/// the clocks need to catch up.
const FOLLOWERS: u64 = 128;

/// The tokens granted in the first round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) least: Token,
    pub(super) largest: Token,
    /// The latest of the nodes' clocks, in microseconds since their epoch, as far
    /// as it is known; it is no later than this.
    pub(super) clock: u64,
}

impl Granted {
    /// The token to agree on, in a round that has taken `elapsed`: the first whole
    /// step far enough above what was granted, or the largest itself where it is
    /// ahead already. Near the highest token there is none: the largest then, too.
    ///
    /// What is latest differs most from copy to copy: so the least counts, unless
    /// the others are too far above it.
    pub(super) fn above(self, elapsed: Duration) -> Token {
        let largest = self.largest;
        let by = micros(elapsed.clamp(LEAST, MOST));
        if largest.get() % STEP_US < FOLLOWERS || largest.get() >= self.clock.saturating_add(by) {
            return largest;
        }
        let above = |token: Token| (token.get() + by).div_ceil(STEP_US) * STEP_US;
        let mut stepped = above(self.least);
        if stepped < largest.get() + by / 2 {
            stepped = above(largest);
        }
        Token::new(stepped).unwrap_or(largest)
    }
}

/// Whether a token is one that a node was brought to, as good as certainly.
pub(super) fn is_whole_step(token: Token) -> bool {
    token.get().is_multiple_of(STEP_US)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(least: u64, largest: u64) -> Granted {
        let [least, largest] = [least, largest].map(|n| Token::new(n).unwrap());
        Granted {
            least,
            largest,
            clock: largest.get(),
        }
    }

    #[test]
    fn steps_are_whole_and_no_shorter_than_half_the_round() {
        for elapsed in [0, 131_072, 600_000, 999_999].map(Duration::from_micros) {
            let due = micros(elapsed.max(LEAST));
            for largest in [
                FOLLOWERS,
                STEP_US - 1,
                9 * STEP_US - 9,
                1_800_000_000_000_000,
            ] {
                for least in [
                    1,
                    largest - 1,
                    largest.saturating_sub(100_000).max(1),
                    largest,
                ] {
                    let above = granted(least, largest).above(elapsed);
                    let by = above.get() - largest;
                    assert!(is_whole_step(above));
                    assert!(by >= due / 2 && by <= due + STEP_US, "{largest}: {above}");
                    // It, and those that follow it, stay.
                    for next in [0, 1, FOLLOWERS - 1] {
                        let next = granted(least, above.get() + next);
                        assert_eq!(next.above(elapsed), next.largest);
                    }
                    let ahead = Granted {
                        clock: largest.saturating_sub(due),
                        ..granted(least, largest)
                    };
                    assert!(largest < due || ahead.above(elapsed) == ahead.largest);
                }
            }
        }
        let first = granted(FOLLOWERS, FOLLOWERS).above(Duration::from_secs(9_999));
        assert_eq!(first.get(), STEP_US);
        let max = Token::MAX.get();
        assert_eq!(granted(max, max).above(Duration::ZERO), Token::MAX);
    }

    #[test]
    fn copies_that_heard_other_majorities_come_to_one_token() {
        let [a, b, late] = [20_007, 20_009, 80_000].map(|us| STEP_US + us);
        let heard = [granted(a, b), granted(a, late), granted(b, late)];
        for (i, heard) in heard.into_iter().enumerate() {
            for took in [i as u64, 400].map(Duration::from_millis) {
                assert_eq!(heard.above(took).get(), STEP_US * 2);
            }
        }
    }
}
