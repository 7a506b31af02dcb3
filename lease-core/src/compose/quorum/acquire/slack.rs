//! The token that nodes which named different ones are brought to.
//!
//! Tokens follow the nodes' clocks. A node that answers later than the others
//! names a higher one, and cannot go back to a lower one: so the token is ahead
//! of all that were granted, by no less than the round has taken so far.
//!
//! It is a whole number of large steps: copies of one acquire that run at the
//! same time come to the same token, whichever majority each of them heard first.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::key::Key;
use crate::token::Token;

/// A second: long beside what the tokens of two majorities differ by.
const STEP_US: u64 = 1 << 20;
/// A token is ahead by an eighth of a second at least, and at most by one second
/// and a step.
const LEAST: Duration = Duration::from_micros(STEP_US / 8);
const MOST: Duration = Duration::from_secs(1);
/// How far this client's tokens for one key may run ahead of the time that passes.
const MOST_AHEAD: Duration = Duration::from_secs(5);
/// Keys share accounts: what one uses up, the others of its account lack.
const ACCOUNTS: usize = 64;

/// How far each key's tokens have run ahead of the time that has passed.
///
/// A token that is ahead of the nodes' clocks leaves equal marks behind, so that
/// the nodes name equal tokens next time and nothing is added. Only where nodes
/// miss tokens in turn is something added each time; this bounds it.
#[derive(Debug)]
pub(in crate::compose::quorum) struct Slack(Mutex<[Account; ACCOUNTS]>);

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// What was run ahead by is used up by then.
    until: Option<Instant>,
    /// The last token paid for: copies of one acquire pay once.
    last: Option<Token>,
}

impl Default for Slack {
    fn default() -> Self {
        Self(Mutex::new([Account::default(); ACCOUNTS]))
    }
}

/// The tokens granted in the first round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) least: Token,
    pub(super) largest: Token,
}

impl Slack {
    /// A token above those granted, in a round that has taken `elapsed`.
    pub(super) fn above(&self, granted: Granted, elapsed: Duration, key: &Key) -> Token {
        let largest = granted.largest;
        let stepped = stepped(granted, elapsed);
        let by = Duration::from_micros(stepped.get() - largest.get());
        if self.pays(key, stepped, by) {
            return stepped;
        }
        // A second round and a release take no less than the first one: what it
        // took adds nothing from lease to lease.
        Token::new(largest.get() + micros(elapsed.min(MOST))).unwrap_or(largest)
    }

    /// Whether there is time left for `token`, which runs ahead by `by`.
    fn pays(&self, key: &Key, token: Token, by: Duration) -> bool {
        let mut hasher = DefaultHasher::new();
        key.as_str().hash(&mut hasher);
        let number = usize::try_from(hasher.finish() % ACCOUNTS as u64).unwrap_or_default();
        // Plain values, whole after each statement.
        let mut accounts = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let Some(account) = accounts.get_mut(number) else {
            return false;
        };
        if account.last == Some(token) {
            return true;
        }
        let now = Instant::now();
        let until = account.until.unwrap_or(now).max(now) + by;
        if until > now + MOST_AHEAD {
            return false;
        }
        *account = Account {
            until: Some(until),
            last: Some(token),
        };
        true
    }
}

/// The first whole step far enough above what was granted, or the largest itself
/// where it is one: another copy has brought a node there. Near the highest token
/// there is none: the largest then, too.
///
/// What is latest differs most from copy to copy: so the least counts, unless the
/// others are too far above it.
fn stepped(granted: Granted, elapsed: Duration) -> Token {
    let largest = granted.largest;
    if is_whole_step(largest) {
        return largest;
    }
    let by = micros(elapsed.clamp(LEAST, MOST));
    let above = |token: Token| (token.get() + by).div_ceil(STEP_US) * STEP_US;
    let mut stepped = above(granted.least);
    if stepped < largest.get() + by / 2 {
        stepped = above(largest);
    }
    Token::new(stepped).unwrap_or(largest)
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

    fn token(n: u64) -> Token {
        Token::new(n).unwrap()
    }

    fn granted(least: u64, largest: u64) -> Granted {
        Granted {
            least: token(least),
            largest: token(largest),
        }
    }

    #[test]
    fn steps_are_whole_and_no_shorter_than_half_the_round() {
        for elapsed in [0, 131_072, 200_000, 999_999].map(Duration::from_micros) {
            let due = micros(elapsed.max(LEAST));
            for largest in [9, STEP_US - 1, STEP_US + 9, 1_800_000_000_000_000] {
                for least in [
                    1,
                    largest - 1,
                    largest.saturating_sub(100_000).max(1),
                    largest,
                ] {
                    let above = stepped(granted(least, largest), elapsed);
                    let by = above.get() - largest;
                    assert!(is_whole_step(above));
                    assert!(by >= due / 2 && by <= due + STEP_US, "{largest}: {above}");
                    let again = granted(least, above.get());
                    assert_eq!(stepped(again, elapsed), above);
                }
            }
        }
        let hours = stepped(granted(1, 1), Duration::from_secs(9_999));
        assert_eq!(hours.get(), STEP_US);
        let max = Token::MAX.get();
        assert_eq!(stepped(granted(max, max), Duration::ZERO), Token::MAX);
    }

    #[test]
    fn copies_that_heard_other_majorities_come_to_one_token() {
        let [a, b, late] = [STEP_US + 7, STEP_US + 9, STEP_US + 60_000];
        let heard = [granted(a, b), granted(a, late), granted(b, late)];
        for (i, heard) in heard.into_iter().enumerate() {
            let took = Duration::from_millis(i as u64);
            assert_eq!(stepped(heard, took).get(), STEP_US * 2);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_key_runs_away_from_the_time_that_passes() {
        let (slack, key) = (Slack::default(), Key::new("k").unwrap());
        let start = 1_800_000_000_000_001;
        let mut last = start;
        for _ in 0..10_000 {
            // Another grant meanwhile, on one node only.
            let heard = granted(last, last + 1);
            last = slack.above(heard, Duration::ZERO, &key).get();
        }
        let ahead = Duration::from_micros(last - start);
        assert!(ahead <= MOST_AHEAD + Duration::from_millis(10), "{ahead:?}");
        // What time it takes is no matter of the account.
        let (heard, took) = (granted(last, last + 1), Duration::from_millis(3));
        let above = slack.above(heard, took, &key);
        assert_eq!(above.get(), last + 1 + 3_000);
        tokio::time::advance(MOST_AHEAD).await;
        assert!(is_whole_step(slack.above(heard, took, &key)));
    }
}
