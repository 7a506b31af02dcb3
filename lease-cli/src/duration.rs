//! Durations as people write and read them.

use std::time::Duration;

use leases::Ttl;

/// `30s`, `1m30s`, `500ms`, `2h`, `1d`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let bare = !trimmed.is_empty() && trimmed.chars().all(|c| c.is_ascii_digit() || c == '.');
    if bare {
        return Err(format!(
            "a number needs its unit: write {trimmed}s for seconds, {trimmed}ms for milliseconds"
        ));
    }
    humantime::parse_duration(trimmed)
        .map_err(|error| format!("{error}; write a duration as in 500ms, 30s, 1m30s, 2h or 1d"))
}

/// A duration within the limits of a TTL.
pub(crate) fn parse_ttl(text: &str) -> Result<Ttl, String> {
    Ttl::new(parse(text)?).map_err(|error| error.to_string())
}

/// For people: three digits are enough.
pub(crate) fn brief(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..=59 => format!("{:.1}s", (duration.as_secs_f64() * 10.0).floor() / 10.0),
        60..=3599 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// For scripts; no store knows fractions of a millisecond better.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1d"), Ok(Duration::from_secs(86_400)));
        assert!(parse("30").unwrap_err().contains("30s"));
        for odd in ["", "x", "-1s", "1.5.s", "99999999999999999999d"] {
            assert!(parse(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_ttl_out_of_range_names_the_range() {
        for odd in ["0s", "1ns", "1ms", "49ms", "367d", "400d"] {
            let words = parse_ttl(odd).unwrap_err();
            assert!(words.contains("50ms to 366d"), "{words}");
        }
        assert!(parse_ttl("31d").is_ok());
    }

    #[test]
    fn brief_durations_are_never_rounded_up() {
        assert_eq!(brief(Duration::from_millis(999)), "999ms");
        assert_eq!(brief(Duration::from_millis(29_999)), "29.9s");
        assert_eq!(brief(Duration::from_secs(125)), "2m 05s");
        assert_eq!(brief(Duration::from_secs(7_260)), "2h 01m");
        assert_eq!(brief(Duration::from_secs(90_000)), "1d 01h");
    }
}
