//! Clocks and round trips.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lease_core::{Finding, StoreError};
use redis::aio::ConnectionLike;

use super::ask::{Answer, Answers, Place, Questions};
use super::settings::Settings;
use super::{Facts, critical, healthy, note, reach, unknown, warning};

/// Pings of one measurement, unless they take too long: who looks at a slow
/// server waits for its other answers as well.
const PINGS: usize = 20;
const FEWEST_PINGS: usize = 2;
const LONG_ENOUGH: Duration = Duration::from_secs(1);
/// Clocks that a time service keeps do not differ by more.
const SAME_TIME: Duration = Duration::from_millis(500);
const OTHER_TIME: Duration = Duration::from_secs(60);

/// The server's clock and ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// The server's, in microseconds since the Unix epoch.
    pub(super) server_us: i64,
    /// Ours, before and after the question.
    ours_us: (i64, i64),
}

impl Clock {
    pub(super) fn ask(questions: &mut Questions) -> Place {
        questions.put(redis::cmd("TIME"))
    }

    /// The questions were sent and answered at these times of ours.
    pub(super) fn hear(answers: &Answers, asked: Place, ours_us: (i64, i64)) -> Answer<Self> {
        let (seconds, micros) = answers.hear::<(i64, i64)>(asked)?;
        Ok(Self {
            server_us: seconds.saturating_mul(1_000_000).saturating_add(micros),
            ours_us,
        })
    }

    /// The least and the most that the server's clock can be ahead of ours, in
    /// microseconds.
    pub(super) fn bounds_us(&self) -> (i64, i64) {
        let (before, after) = self.ours_us;
        (
            self.server_us.saturating_sub(after),
            self.server_us.saturating_sub(before),
        )
    }

    /// How far the server's clock is certainly ahead of ours, in microseconds;
    /// negative when it is behind.
    pub(super) fn ahead_us(&self) -> i64 {
        let (before, after) = self.ours_us;
        if self.server_us > after {
            self.server_us.saturating_sub(after)
        } else {
            self.server_us.saturating_sub(before).min(0)
        }
    }
}

/// This machine's clock, in microseconds since the Unix epoch.
pub(super) fn wall_us() -> i64 {
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
    if off <= SAME_TIME {
        healthy("clock: the server's and this machine's agree", why).advice(advice)
    } else if off <= OTHER_TIME {
        note(
            format!("clock: the server's is {off:.1?} {side} this machine's"),
            why,
        )
        .advice(advice)
    } else {
        warning(
            format!("clock: the server's is {off:.0?} {side} this machine's"),
            why,
        )
        .advice(advice)
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
    /// As [`reach`].
    pub(super) async fn measure(
        connection: &mut (impl ConnectionLike + Send),
    ) -> Result<Self, StoreError> {
        let (start, mut sorted) = (Instant::now(), Vec::with_capacity(PINGS));
        while sorted.len() < PINGS && (sorted.len() < FEWEST_PINGS || start.elapsed() < LONG_ENOUGH)
        {
            let sent = Instant::now();
            reach(connection).await?;
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
        let advice = "take a longer TTL, a server that is nearer, or see what keeps it busy \
                      (SLOWLOG GET)";
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

/// How long other people's scripts may keep the server.
pub(super) fn scripts(settings: &Settings, facts: &Facts) -> Option<Finding> {
    let limit = settings.number("lua-time-limit")?;
    let what = format!("lua-time-limit: {limit} ms");
    let why = "until then a slow script of somebody else makes everybody wait, renewals too; \
               after it the server answers BUSY";
    Some(
        if limit == 0 || Duration::from_millis(limit) >= facts.ttl.get() {
            note(
                what,
                format!("{why}. A TTL of {} may pass meanwhile", facts.ttl),
            )
            .advice("keep the scripts that run on this server short")
        } else {
            healthy(what, why)
        },
    )
}

#[cfg(test)]
mod tests {
    use lease_core::{Severity, Ttl};

    use super::*;
    use crate::doctor::tests::facts;

    #[test]
    fn a_clock_is_off_by_what_the_round_trip_cannot_explain() {
        let severity = |server_us| {
            let ours_us = (1_000_000_000, 1_002_000_000);
            clock(&Ok(Clock { server_us, ours_us })).severity
        };
        assert_eq!(severity(1_001_000_000), Severity::Healthy);
        assert_eq!(severity(1_002_400_000), Severity::Healthy);
        assert_eq!(severity(999_600_000), Severity::Healthy);
        assert_eq!(severity(1_012_000_000), Severity::Note);
        assert_eq!(severity(990_000_000), Severity::Note);
        assert_eq!(severity(0), Severity::Warning);
        assert_eq!(severity(i64::MAX), Severity::Warning);
        assert_eq!(severity(i64::MIN), Severity::Warning);
    }

    #[test]
    fn round_trips_are_judged_by_the_ttl() {
        let facts = Facts {
            ttl: Ttl::new(Duration::from_secs(3)).unwrap(),
            ..facts()
        };
        let severity = |ms: &[u64]| {
            let sorted = ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
            Latency { sorted }.judge(&facts).severity
        };
        assert_eq!(severity(&[1, 2, 300]), Severity::Healthy);
        assert_eq!(severity(&[1, 2, 400]), Severity::Warning);
        assert_eq!(severity(&[1, 2, 1100]), Severity::Critical);
        assert_eq!(severity(&[]), Severity::Note);
    }
}
