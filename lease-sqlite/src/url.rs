//! Store URLs.

use std::time::Duration;

use lease_core::InvalidInput;

use crate::SqliteOptions;

const FORMS: &str = "write sqlite:///absolute/path or sqlite:relative/path";

pub(crate) fn parse(url: &str) -> Result<SqliteOptions, InvalidInput> {
    let bad = |why: String| InvalidInput::Url(why);
    let rest = url
        .strip_prefix("sqlite:")
        .ok_or_else(|| bad(format!("not an sqlite URL; {FORMS}")))?;
    if rest.contains('#') {
        return Err(bad("write # in an sqlite URL's path as %23".to_owned()));
    }
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    let path = match path.strip_prefix("//") {
        Some(absolute) if absolute.starts_with('/') => absolute,
        Some(_) => {
            return Err(bad(format!(
                "an sqlite URL names no host, and after // comes an absolute path; {FORMS}"
            )));
        }
        None => path,
    };
    let path = percent_decoded(path)
        .ok_or_else(|| bad("a % in an sqlite URL's path is not followed by two hexadecimal digits, or the path is not UTF-8; write % as %25".to_owned()))?;
    if path.is_empty() {
        return Err(bad(format!("an sqlite URL needs a path; {FORMS}")));
    }
    let mut options = SqliteOptions::new(path);
    for pair in query.into_iter().flat_map(|q| q.split('&')) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let set = match name {
            "busy_wait_ms" => SqliteOptions::busy_wait,
            "poll_interval_ms" => SqliteOptions::poll_interval,
            "tombstone_retention_ms" => SqliteOptions::tombstone_retention,
            _ => {
                return Err(bad(format!(
                    "{name:?} is not an option of an sqlite URL; known are busy_wait_ms, \
                     poll_interval_ms and tombstone_retention_ms"
                )));
            }
        };
        let ms: u64 = value.parse().map_err(|_| {
            bad(format!(
                "{name} in an sqlite URL needs a whole number of milliseconds"
            ))
        })?;
        options = set(options, Duration::from_millis(ms));
    }
    Ok(options)
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        decoded.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(decoded).ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_two_forms_are_read_and_nothing_else() {
        let path = |url| parse(url).map(|o| o.path);
        assert_eq!(
            path("sqlite:///v/a%20b%25.db").unwrap(),
            Path::new("/v/a b%.db")
        );
        assert_eq!(path("sqlite:a/b.db").unwrap(), Path::new("a/b.db"));
        assert_eq!(path("sqlite:/v/b.db").unwrap(), Path::new("/v/b.db"));
        let options = parse("sqlite:a?busy_wait_ms=7&poll_interval_ms=8").unwrap();
        assert_eq!(options.busy_wait, Duration::from_millis(7));
        assert_eq!(options.poll_interval, Duration::from_millis(8));
        for bad in [
            "",
            "a.db",
            "sqlite:",
            "sqlite://",
            "sqlite://host/a",
            "sqlite:a%",
            "sqlite:a%zz",
            "sqlite:%ff",
            "sqlite:a#b",
            "sqlite:a?mode=ro",
            "sqlite:a?",
            "sqlite:a?busy_wait_ms=x",
            "sqlite:a?busy_wait_ms=-1",
            "redis://x",
        ] {
            assert!(matches!(path(bad), Err(InvalidInput::Url(_))), "{bad}");
        }
    }
}
