//! What time it is at the servers, for people.
//!
//! Nobody can ask. Each message that is applied was stamped before, so that the
//! servers' clock is at least that stamp by then and goes on from there; while nothing
//! was heard for long, this machine's wall clock may know better. Ages and delays in
//! lists are told by it, and nothing is decided.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lease_core::Moment;

/// A bound from below.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServersClock {
    /// The latest stamp, less this machine's monotonic clock when it was applied.
    ahead_us: i128,
    wall: fn() -> u64,
}

impl ServersClock {
    pub(super) fn new(wall: fn() -> u64) -> Self {
        Self {
            ahead_us: i128::MIN,
            wall,
        }
    }

    pub(super) fn heard(&mut self, stamp_us: u64, at: Moment) {
        self.ahead_us = self.ahead_us.max(i128::from(stamp_us) - micros(at));
    }

    /// Microseconds since the Unix epoch.
    pub(super) fn now_us(&self, at: Moment) -> u64 {
        let heard = self.ahead_us.saturating_add(micros(at)).max(0);
        u64::try_from(heard).unwrap_or(u64::MAX).max((self.wall)())
    }
}

fn micros(moment: Moment) -> i128 {
    i128::from(moment.as_nanos() / 1000)
}

/// This machine's wall clock.
pub(super) fn wall() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let since_epoch: Duration = since_epoch.unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}
