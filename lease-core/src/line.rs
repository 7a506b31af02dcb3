//! Waiters in line: how long a place and a turn last. The rules stand at
//! [`WaiterOrder::Fifo`](crate::WaiterOrder::Fifo).

use std::time::Duration;

/// How long a free key is kept for each waiter who is ahead in line.
///
/// Longer than a waiter needs that is alive: a hint and a round trip, or twice the half
/// second in which one looks by itself where a pooler keeps hints away. As short as it can
/// be beyond that, since this is what a dead waiter costs.
pub const WAITER_TURN: Duration = Duration::from_secs(1);

/// A waiter that asks again less often than this keeps its place no longer.
const MOST_SELDOM: Duration = Duration::from_secs(60);

/// How long a place lasts after a request of its owner that says to ask again
/// [within](crate::AcquireRequest::waits) this time: a little more than twice as long, so
/// that one lost request costs no place.
#[must_use]
pub fn place_lasts(waits: Duration) -> Duration {
    waits.min(MOST_SELDOM) * 2 + WAITER_TURN
}

/// When it is the turn of somebody with so many ahead, at a key that has been free for
/// this long. Zero: now.
#[must_use]
pub fn turn_in(ahead: u64, free_for: Duration) -> Duration {
    let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
    WAITER_TURN.saturating_mul(ahead).saturating_sub(free_for)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_come_one_after_the_other() {
        assert_eq!(turn_in(0, Duration::ZERO), Duration::ZERO);
        assert_eq!(turn_in(2, Duration::ZERO), WAITER_TURN * 2);
        assert_eq!(turn_in(2, WAITER_TURN), WAITER_TURN);
        assert_eq!(turn_in(2, WAITER_TURN * 3), Duration::ZERO);
        assert!(turn_in(u64::MAX, Duration::ZERO) > WAITER_TURN * 1_000_000);
    }

    #[test]
    fn no_place_lasts_for_ever() {
        assert_eq!(place_lasts(Duration::ZERO), WAITER_TURN);
        let look = Duration::from_secs(5);
        assert!(place_lasts(look) > look * 2 && place_lasts(look) < look * 3);
        assert_eq!(place_lasts(Duration::MAX), place_lasts(MOST_SELDOM));
    }
}
