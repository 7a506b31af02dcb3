//! Durations in messages, for people.

use std::fmt;
use std::time::Duration;

/// Below this a duration is written in seconds alone.
const IN_SECONDS: f64 = 99.95;
/// Each unit in seconds, the largest first.
const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];

/// A duration as people say it: two or three digits, then the unit. Not for
/// what a program reads, nor for a holder's remaining time, which must never be
/// rounded up.
pub(crate) struct Rounded(pub(crate) Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = (self.0.as_secs_f64() * 1000.0).round();
        if millis < 1.0 && !self.0.is_zero() {
            return write!(f, "{:?}", self.0);
        }
        if millis < 1000.0 {
            return write!(f, "{millis}ms");
        }
        let seconds = self.0.as_secs_f64();
        if seconds < IN_SECONDS {
            return write!(f, "{}s", (seconds * 10.0).round() / 10.0);
        }
        two_units(seconds.round() as u64, f)
    }
}

fn two_units(seconds: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut left = seconds;
    let mut parts = UNITS
        .iter()
        .map(|(of, unit)| {
            let count = left / of;
            left %= of;
            (count, unit)
        })
        .skip_while(|(count, _)| *count == 0)
        .take(2);
    if let Some((count, unit)) = parts.next() {
        write!(f, "{count}{unit}")?;
    }
    match parts.next() {
        Some((count, unit)) if count > 0 => write!(f, " {count}{unit}"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        let rounded = |nanos: u64| Rounded(Duration::from_nanos(nanos)).to_string();
        assert_eq!(rounded(0), "0ms");
        assert_eq!(rounded(1_500), "1.5µs");
        assert_eq!(rounded(50_000_000), "50ms");
        assert_eq!(rounded(999_600_000), "1s");
        assert_eq!(rounded(1_999_831_536), "2s");
        assert_eq!(rounded(2_986_481_000), "3s");
        assert_eq!(rounded(2_449_000_000), "2.4s");
        let seconds = |seconds| Rounded(Duration::from_secs(seconds)).to_string();
        assert_eq!(seconds(60), "60s");
        assert_eq!(seconds(125), "2m 5s");
        assert_eq!(seconds(3_600), "1h");
        assert_eq!(seconds(31_622_400), "366d");
        assert_eq!(seconds(90_061), "1d 1h");
    }
}
