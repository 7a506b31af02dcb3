//! Clocks and round trips.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lease_core::{Finding, StoreError};
use tokio::time::Instant;

use super::ask::{Answer, Asker};
use super::{Facts, critical, healthy, note, unknown, warning};

/// Round trips of one measurement, unless they take too long.
const TRIPS: usize = 20;
const FEWEST_TRIPS: usize = 2;
const LONG_ENOUGH: Duration = Duration::from_secs(1);
/// Clocks that a time service keeps do not differ by more.
const SAME_TIME: Duration = Duration::from_millis(500);
const OTHER_TIME: Duration = Duration::from_secs(60);

/// The server's clock and ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The server's, in microseconds since the Unix epoch.
    server_us: i64,
    /// Ours, before and after the question.
    ours_us: (i64, i64),
}

impl Clock {
    pub(super) async fn ask(asker: &mut Asker<'_>) -> Result<Answer<Self>, StoreError> {
        let before = wall_us();
        let line = asker
            .one("SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS us")
            .await?;
        let ours_us = (before, wall_us());
        Ok(line.and_then(|line| {
            Ok(Self {
                server_us: line.number("us")?,
                ours_us,
            })
        }))
    }

    /// How far the server's clock is certainly ahead of ours, in microseconds;
    /// negative when it is behind.
    fn ahead_us(&self) -> i64 {
        let (before, after) = self.ours_us;
        if self.server_us > after {
            self.server_us.saturating_sub(after)
        } else {
            self.server_us.saturating_sub(before).min(0)
        }
    }
}

/// This machine's clock, in microseconds since the Unix epoch.
fn wall_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn clock(clock: &Answer<Clock>) -> Finding {
    let why = "grants expire by the server's clock alone, and tokens follow it: a step of it \
               forward ends grants early, one back makes them last longer; a step cannot be seen \
               from here";
    let ahead = match clock {
        Ok(clock) => clock.ahead_us(),
        Err(refusal) => return unknown("clock", why, refusal),
    };
    let off = Duration::from_micros(ahead.unsigned_abs());
    let side = if ahead < 0 { "behind" } else { "ahead of" };
    let advice = "keep both clocks with a time service that slews and never steps them";
    let what = format!("clock: the server's is {off:.1?} {side} this machine's");
    if off <= SAME_TIME {
        healthy("clock: the server's and this machine's agree", why).advice(advice)
    } else if off <= OTHER_TIME {
        note(what, why).advice(advice)
    } else {
        warning(what, why).advice(advice)
    }
}

/// How long round trips take.
#[derive(Clone, Debug)]
pub(super) struct Latency {
    /// From the shortest to the longest.
    sorted: Vec<Duration>,
}

impl Latency {
    /// # Errors
    /// Silence, and the end of the session.
    pub(super) async fn measure(asker: &mut Asker<'_>) -> Result<Self, StoreError> {
        let (start, mut sorted) = (Instant::now(), Vec::with_capacity(TRIPS));
        while sorted.len() < TRIPS && (sorted.len() < FEWEST_TRIPS || start.elapsed() < LONG_ENOUGH)
        {
            let sent = Instant::now();
            // What it says does not matter, when it comes does.
            let _answer = asker.run("SELECT 1").await?;
            sorted.push(sent.elapsed());
        }
        sorted.sort_unstable();
        Ok(Self { sorted })
    }

    pub(super) fn judge(&self, facts: &Facts) -> Finding {
        let why = "a renewal that takes long leaves the holder little of its TTL";
        let (Some(middle), Some(longest)) =
            (self.sorted.get(self.sorted.len() / 2), self.sorted.last())
        else {
            return unknown("round trips", why, "none was made");
        };
        let what = format!(
            "round trips: {middle:.1?} at the median and {longest:.1?} at most, of {}, for a TTL \
             of {}",
            self.sorted.len(),
            facts.ttl
        );
        let advice = "take a longer TTL, a server that is nearer, or see what keeps it busy";
        // The first renewal begins after a third of the TTL.
        let third = facts.ttl.get() / 3;
        if *longest > third {
            critical(what, why).advice(advice)
        } else if longest.saturating_mul(3) > third {
            warning(what, why).advice(advice)
        } else {
            healthy(what, why)
        }
    }
}

#[cfg(test)]
mod tests {
    use lease_core::Severity;

    use super::*;

    #[test]
    fn a_clock_is_off_by_what_the_round_trip_cannot_explain() {
        let severity = |server_us| {
            let ours_us = (1_000_000_000, 1_002_000_000);
            clock(&Ok(Clock { server_us, ours_us })).severity
        };
        assert_eq!(severity(1_001_000_000), Severity::Healthy);
        assert_eq!(severity(1_002_400_000), Severity::Healthy);
        assert_eq!(severity(1_012_000_000), Severity::Note);
        assert_eq!(severity(990_000_000), Severity::Note);
        assert_eq!(severity(0), Severity::Warning);
        assert_eq!(severity(i64::MAX), Severity::Warning);
        assert_eq!(severity(i64::MIN), Severity::Warning);
    }
}
