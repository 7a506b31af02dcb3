//! What the holders of keys believed, for a run under faults.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use lease_core::{DriftAllowance, Owner, Token};

use super::check::{order_violation, violation};
use super::{Done, Record};

/// One handle's life. All times are of one monotonic clock, since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Which key, by a number of the test's own.
    pub key: usize,
    /// The owner of the grant.
    pub owner: Owner,
    /// Its token.
    pub token: Token,
    /// Before the call that acquired it.
    pub asked: Duration,
    /// When that call returned.
    pub from: Duration,
    /// The last instant at which its holder may have acted: its deadline, or
    /// what came earlier, the news of its loss or the call that released it.
    pub until: Duration,
}

/// The lives of all handles of a run, from many tasks.
///
/// ```
/// # use std::time::Duration;
/// # use lease_core::{Owner, Token};
/// use lease_conformance::history::{Holding, Holdings};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let ms = Duration::from_millis;
/// let holdings = Holdings::new();
/// for (token, asked, until) in [(7, 0, 90), (8, 80, 200)] {
///     let (owner, token) = (Owner::random()?, Token::new(token)?);
///     let (asked, from, until) = (ms(asked), ms(asked + 1), ms(until));
///     holdings.add(Holding { key: 0, owner, token, asked, from, until });
/// }
/// assert_eq!(holdings.tokens_rise(), Ok(()));
/// assert!(holdings.are_exclusive().unwrap_err().contains("two owners held one key"));
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Holdings(Mutex<Vec<Holding>>);

impl Holdings {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One more.
    pub fn add(&self, holding: Holding) {
        self.lock().push(holding);
    }

    /// All of them, in the order in which they were added.
    #[must_use]
    pub fn all(&self) -> Vec<Holding> {
        self.lock().clone()
    }

    /// Whether no token was granted twice, and each that was asked for after
    /// another one's grant is above it.
    ///
    /// # Errors
    /// The first handles found that break this, in words.
    pub fn tokens_rise(&self) -> Result<(), String> {
        order_violation(&self.records()).map_or(Ok(()), Err)
    }

    /// Whether [`tokens_rise`](Self::tokens_rise), and no two owners held one
    /// key at the same time.
    ///
    /// # Errors
    /// The first handles found that break this, in words.
    pub fn are_exclusive(&self) -> Result<(), String> {
        // The times of handles have it in them already.
        let drift = DriftAllowance::default();
        violation(&self.records(), drift).map_or(Ok(()), Err)
    }

    fn records(&self) -> Vec<Record> {
        let record = |holding: &Holding| Record {
            key: holding.key,
            owner: holding.owner,
            sent: holding.asked,
            replied: holding.from,
            done: Done::Held {
                token: holding.token,
                until: holding.until,
            },
        };
        self.lock().iter().map(record).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Holding>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holdings(all: &[(u8, u64, u64, u64)]) -> Holdings {
        let holdings = Holdings::new();
        for &(owner, token, from, until) in all {
            holdings.add(Holding {
                key: 0,
                owner: Owner::from_bytes([owner; 16]),
                token: Token::new(token).unwrap(),
                asked: Duration::from_millis(from),
                from: Duration::from_millis(from + 1),
                until: Duration::from_millis(until),
            });
        }
        holdings
    }

    #[test]
    fn one_after_the_other_is_well() {
        let well = holdings(&[(1, 5, 0, 40), (2, 6, 50, 90), (3, 7, 90, 95)]);
        assert_eq!(well.are_exclusive(), Ok(()));
    }

    #[test]
    fn two_at_once_are_told_apart_from_tokens_that_fall() {
        let both = holdings(&[(1, 5, 0, 60), (2, 6, 50, 90)]);
        assert_eq!(both.tokens_rise(), Ok(()));
        assert!(both.are_exclusive().unwrap_err().contains("two owners"));
        let falling = holdings(&[(1, 5, 0, 40), (2, 4, 50, 90)]);
        assert!(falling.tokens_rise().unwrap_err().contains("not above"));
        let twice = holdings(&[(1, 5, 0, 40), (2, 5, 50, 90)]);
        assert!(twice.tokens_rise().unwrap_err().contains("granted to two"));
        // The long one is over the short one in its midst.
        let hidden = holdings(&[(1, 5, 0, 100), (2, 6, 30, 35), (3, 7, 60, 70)]);
        assert!(hidden.are_exclusive().is_err());
    }
}
