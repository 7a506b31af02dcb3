//! How long a grant lasts, and how much of that its holder may count on.

use std::fmt;
use std::time::Duration;

use crate::error::InvalidInput;

/// How long a grant lasts at the store, by the store's clock.
///
/// 50 ms to 366 days in whole milliseconds; a fraction of a millisecond is
/// rounded **up**, so that a grant is never shorter than what was asked for.
/// A store may narrow the range, see
/// [`Guarantees::ttl`](crate::Guarantees::ttl).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u64);

impl Ttl {
    /// The shortest TTL, 50 ms.
    pub const MIN: Self = Self(50);
    /// The longest TTL, 366 days.
    pub const MAX: Self = Self(366 * 24 * 60 * 60 * 1000);

    /// Checks `ttl` and keeps it.
    ///
    /// # Errors
    /// [`InvalidInput::TtlOutOfRange`] below 50 ms or above 366 days; never a
    /// silent change.
    pub fn new(ttl: Duration) -> Result<Self, InvalidInput> {
        if ttl < Self::MIN.get() || ttl > Self::MAX.get() {
            return Err(InvalidInput::TtlOutOfRange {
                ttl,
                min: Self::MIN.get(),
                max: Self::MAX.get(),
            });
        }
        let whole = ttl.as_millis() as u64;
        let part = u64::from(!ttl.subsec_nanos().is_multiple_of(1_000_000));
        Ok(Self(whole + part))
    }

    /// The TTL as a duration.
    #[must_use]
    pub const fn get(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// The TTL in milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The TTL in microseconds.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 * 1000
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = InvalidInput;

    fn try_from(ttl: Duration) -> Result<Self, Self::Error> {
        Self::new(ttl)
    }
}

/// What a holder takes off its TTL because its clock and the store's may run
/// at different speeds: a share of the TTL plus a constant.
///
/// Defaults to 1 % plus 2 ms. Without any, a holder whose clock is slow
/// believes in its lease after the store has given it to somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriftAllowance {
    per_million: u32,
    constant: Duration,
}

impl DriftAllowance {
    /// `per_million` millionths of the TTL plus `constant`.
    ///
    /// # Errors
    /// [`InvalidInput::DriftTooLarge`] when the share is half of the TTL or
    /// more: nothing useful would be left to the holder.
    pub const fn new(per_million: u32, constant: Duration) -> Result<Self, InvalidInput> {
        if per_million >= 500_000 {
            return Err(InvalidInput::DriftTooLarge { per_million });
        }
        Ok(Self {
            per_million,
            constant,
        })
    }

    /// The allowance for one TTL; at most the TTL itself.
    #[must_use]
    pub fn of(&self, ttl: Ttl) -> Duration {
        let share_ns = u128::from(ttl.as_micros()) * u128::from(self.per_million) / 1000;
        let share = Duration::from_nanos(u64::try_from(share_ns).unwrap_or(u64::MAX));
        share.saturating_add(self.constant).min(ttl.get())
    }

    /// How long after the send of its request a holder may act on a grant:
    /// the TTL without the allowance.
    #[must_use]
    pub fn validity(&self, ttl: Ttl) -> Duration {
        ttl.get().saturating_sub(self.of(ttl))
    }
}

impl Default for DriftAllowance {
    fn default() -> Self {
        Self {
            per_million: 10_000,
            constant: Duration::from_millis(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttls_are_bounded_and_round_up() {
        let refused = |d| matches!(Ttl::new(d), Err(InvalidInput::TtlOutOfRange { .. }));
        assert!(refused(Duration::ZERO));
        assert!(refused(Duration::from_nanos(1)));
        assert!(refused(Duration::from_millis(1)));
        assert!(refused(Duration::from_nanos(49_999_999)));
        assert!(refused(Duration::MAX));
        assert!(refused(Ttl::MAX.get() + Duration::from_nanos(1)));
        let day = Duration::from_secs(86_400);
        assert_eq!(Ttl::new(day * 31).unwrap().get(), day * 31);
        assert_eq!(Ttl::new(day * 366).unwrap(), Ttl::MAX);
        let odd = Ttl::new(Duration::from_micros(50_001)).unwrap();
        assert_eq!(odd.as_millis(), 51);
    }

    #[test]
    fn drift_is_taken_off_never_added() {
        let drift = DriftAllowance::default();
        let ttl = Ttl::new(Duration::from_secs(10)).unwrap();
        assert_eq!(drift.of(ttl), Duration::from_millis(102));
        assert_eq!(drift.validity(ttl), Duration::from_millis(9_898));
        assert_eq!(drift.validity(Ttl::MIN), Duration::from_micros(47_500));
        let wide = DriftAllowance::new(0, Duration::MAX).unwrap();
        assert_eq!(wide.validity(ttl), Duration::ZERO);
        assert!(DriftAllowance::new(500_000, Duration::ZERO).is_err());
    }
}
