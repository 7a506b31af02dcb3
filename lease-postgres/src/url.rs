//! Store URLs.
//!
//! The driver reads where the server is and how to log in. It lets options that
//! it does not know pass, with their values in its log; so they are looked at
//! here first. Its errors are not passed on where they could quote the URL.

use std::env;
use std::time::Duration;

use lease_core::InvalidInput;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::PostgresOptions;

const FORMS: &str = "write postgres://user:password@host:5432/database, and special characters in \
                     it as %40 and the like";

/// What the driver reads.
const DRIVERS: [&str; 11] = [
    "host",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
];

const OURS: &str = "schema, table_prefix, migrate, connections, asynchronous_commit, \
                    tombstone_retention_ms, response_timeout_ms, connect_timeout_ms and \
                    crash_detection";

fn bad(why: impl Into<String>) -> InvalidInput {
    InvalidInput::Url(why.into())
}

pub(crate) fn parse(text: &str) -> Result<PostgresOptions, InvalidInput> {
    if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(bad(
            "a Postgres URL holds a space, a line's end or a control character; write a space as \
             %20",
        ));
    }
    readable("PGPORT", |text| text.parse::<u16>().is_ok())?;
    readable("PGSSLMODE", |text| text.parse::<PgSslMode>().is_ok())?;
    let rest = ["postgres://", "postgresql://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))
        .ok_or_else(|| bad(format!("not a Postgres URL; {FORMS}")))?;
    if rest.contains('#') {
        return Err(bad("write # in a Postgres URL as %23"));
    }
    let (place, options) = match rest.split_once('?') {
        Some((place, options)) => (place, Some(options)),
        None => (rest, None),
    };
    let (authority, path) = place.split_once('/').unwrap_or((place, ""));
    // A special character in a password that is not encoded puts the rest of
    // the password behind, and some other host in front.
    if path.contains('@') || options.is_some_and(|o| o.contains('@')) {
        return Err(bad(
            "a Postgres URL has an @ after the host; in a user name or password write / as %2F, ? \
             as %3F and # as %23, and an @ as %40 anywhere",
        ));
    }
    if path.contains('/') {
        return Err(bad(
            "after the host of a Postgres URL comes the name of one database; write / in it as %2F",
        ));
    }
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    if host.contains(',') {
        return Err(bad(
            "a Postgres URL names one server: the primary, or an address that leads to it",
        ));
    }
    let mut query = Query::default();
    for pair in options.into_iter().flat_map(|o| o.split('&')) {
        query.read(pair)?;
    }
    let mut drivers = format!("postgres://{place}");
    if !query.drivers.is_empty() {
        drivers = format!("{drivers}?{}", query.drivers.join("&"));
    }
    let connect: PgConnectOptions = drivers
        .parse()
        .map_err(|_| bad(format!("the driver takes no such Postgres URL; {FORMS}")))?;
    query.ours.into_iter().try_fold(
        PostgresOptions::from_options(connect),
        |options, (name, value)| apply(options, &name, &value),
    )
}

/// The driver would take what it cannot read for what is not set: `verify_full`,
/// written so, for no check at all.
fn readable(name: &str, is: impl Fn(&str) -> bool) -> Result<(), InvalidInput> {
    match env::var_os(name) {
        Some(value) if !value.to_str().is_some_and(is) => Err(bad(format!(
            "the environment variable {name} cannot be read; it is a port, or one of disable, \
             allow, prefer, require, verify-ca and verify-full"
        ))),
        _ => Ok(()),
    }
}

#[derive(Default)]
struct Query {
    drivers: Vec<String>,
    ours: Vec<(String, String)>,
    seen: Vec<String>,
}

impl Query {
    fn read(&mut self, pair: &str) -> Result<(), InvalidInput> {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if self.seen.iter().any(|seen| seen == name) {
            return Err(bad(
                "an option is given twice in a Postgres URL; give each once",
            ));
        }
        if DRIVERS.contains(&name) {
            self.drivers.push(pair.to_owned());
        } else {
            let value = percent_decoded(value).ok_or_else(|| {
                bad(
                    "a % in a Postgres URL is not followed by two hexadecimal digits, or they are \
                     not UTF-8; write % as %25",
                )
            })?;
            self.ours.push((name.to_owned(), value));
        }
        self.seen.push(name.to_owned());
        Ok(())
    }
}

fn apply(
    options: PostgresOptions,
    name: &str,
    value: &str,
) -> Result<PostgresOptions, InvalidInput> {
    Ok(match name {
        "schema" => options.schema(value)?,
        "table_prefix" => options.table_prefix(value)?,
        "migrate" => options.migrate(yes(name, value)?),
        "asynchronous_commit" => options.asynchronous_commit(yes(name, value)?),
        "connections" => {
            let words = || bad("connections in a Postgres URL needs a whole number");
            options.connections(value.parse().map_err(|_| words())?)
        }
        "tombstone_retention_ms" => options.tombstone_retention(millis(name, value)?),
        "response_timeout_ms" => options.response_timeout(millis(name, value)?),
        "crash_detection" => options.crash_detection(grace(value)?),
        "connect_timeout_ms" => options.connect_timeout(millis(name, value)?),
        _ => {
            // Anything else may be the rest of a password.
            let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            let shown = match plain && !name.is_empty() {
                true => format!("{name:?}"),
                false => "something behind the ?".to_owned(),
            };
            return Err(bad(format!(
                "{shown} is not an option of a Postgres URL; known are {} and {OURS}",
                DRIVERS.join(", ")
            )));
        }
    })
}

fn yes(name: &str, value: &str) -> Result<bool, InvalidInput> {
    value
        .parse()
        .map_err(|_| bad(format!("{name} in a Postgres URL is true or false")))
}

/// `true`, `false`, or a time such as `1500ms`.
fn grace(value: &str) -> Result<Option<Duration>, InvalidInput> {
    match (value, value.strip_suffix("ms").map(str::parse)) {
        ("true", _) => Ok(Some(PostgresOptions::GRACE)),
        ("false", _) => Ok(None),
        (_, Some(Ok(ms))) => Ok(Some(Duration::from_millis(ms))),
        _ => Err(bad(
            "crash_detection in a Postgres URL is true, false, or a whole number of milliseconds \
             such as 1500ms",
        )),
    }
}

fn millis(name: &str, value: &str) -> Result<Duration, InvalidInput> {
    let ms: u64 = value.parse().map_err(|_| {
        bad(format!(
            "{name} in a Postgres URL needs a whole number of milliseconds"
        ))
    })?;
    Ok(Duration::from_millis(ms))
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
    use super::*;

    #[test]
    fn the_server_and_our_options_are_read() {
        let url = "postgresql://me:p%40ss@db.example:6000/app?schema=our%20own&table_prefix=x_&\
                   migrate=false&connections=9&response_timeout_ms=70&sslmode=disable&\
                   application_name=worker";
        let options = parse(url).unwrap();
        assert_eq!(options.connect.get_host(), "db.example");
        assert_eq!(options.connect.get_port(), 6000);
        assert_eq!(options.connect.get_database(), Some("app"));
        assert_eq!(options.connect.get_application_name(), Some("worker"));
        assert_eq!(options.names.full("keys"), "\"our own\".\"x_keys\"");
        assert!(!options.migrate);
        assert_eq!(options.connections, 9);
        assert_eq!(options.response_timeout, Duration::from_millis(70));
        let grace = |value: &str| {
            let url = format!("postgres://h/db?crash_detection={value}");
            parse(&url).unwrap().crash_detection
        };
        assert_eq!(grace("true"), Some(PostgresOptions::GRACE));
        assert_eq!(grace("700ms"), Some(Duration::from_millis(700)));
        assert_eq!(grace("false"), None);
        let socket = parse("postgres:///app?host=/run/postgresql").unwrap();
        assert!(socket.connect.get_socket().is_some());
    }

    #[test]
    fn every_option_is_read_in_its_place() {
        let of = |query: &str| parse(&format!("postgres://h/d?{query}")).unwrap();
        assert_eq!(of("host=other").connect.get_host(), "other");
        assert_eq!(of("port=7").connect.get_port(), 7);
        assert_eq!(of("dbname=x").connect.get_database(), Some("x"));
        assert_eq!(of("user=who").connect.get_username(), "who");
        let worker = of("application_name=worker");
        assert_eq!(worker.connect.get_application_name(), Some("worker"));
        let set = of("options=-c%20geqo=off");
        assert!(set.connect.get_options().unwrap().ends_with("-c geqo=off"));
        for mode in [
            "disable",
            "allow",
            "prefer",
            "require",
            "verify-ca",
            "verify-full",
        ] {
            of(&format!("sslmode={mode}"));
        }
        of("password=p&sslrootcert=/a&sslcert=/b&sslkey=/c");
        assert!(of("asynchronous_commit=true").asynchronous_commit);
        assert!(of("migrate=true").migrate);
        let ms = |ms| Duration::from_millis(ms);
        let timed = of("response_timeout_ms=1&connect_timeout_ms=2&tombstone_retention_ms=3");
        assert_eq!(timed.response_timeout, ms(1));
        assert_eq!(timed.connect_timeout, ms(2));
        assert_eq!(timed.tombstone_retention, ms(3));
    }

    #[test]
    fn limits_are_named() {
        let long = "x".repeat(64);
        for (query, limit) in [
            (format!("schema={long}"), "1 to 63"),
            (format!("table_prefix={long}"), "up to 47"),
            ("migrate=1".to_owned(), "true or false"),
            ("asynchronous_commit=on".to_owned(), "true or false"),
            ("connections=many".to_owned(), "whole number"),
            ("connect_timeout_ms=-1".to_owned(), "milliseconds"),
            ("tombstone_retention_ms=1.5".to_owned(), "milliseconds"),
            ("nosuch=1".to_owned(), "known are host, port"),
        ] {
            let words = parse(&format!("postgres://h/d?{query}"));
            let words = words.unwrap_err().to_string();
            assert!(words.contains(limit), "{words}");
        }
    }

    #[test]
    fn bad_urls_are_refused_and_not_repeated() {
        for bad in [
            "",
            "redis://secret@h",
            "postgres:/h/secret",
            "postgres://u:secret@h:x/db",
            "postgres://u:secret@h1,h2/db",
            "postgres://u:sec/ret@h/db",
            "postgres://u:sec?ret@h/db",
            "postgres://u:secret@h/db#x",
            "postgres://u:secret@h/a/b",
            "postgres://u:secret@h/db?unknown=secret",
            "postgres://u:secret@h/db?",
            "postgres://u:secret@h/db?schema=",
            "postgres://u:secret@h/db?schema=a&schema=b",
            "postgres://u:secret@h/db?migrate=secret",
            "postgres://u:secret@h/db?connections=secret",
            "postgres://u:secret@h/db?response_timeout_ms=secret",
            "postgres://u:secret@h/db?sslmode=secret",
            "postgres://u:secret@h/db?crash_detection=secret",
            "postgres://u:secret@h/db?schema=%zz",
            "postgres://u:se cret@h/db",
        ] {
            let error = parse(bad).unwrap_err();
            assert!(matches!(error, InvalidInput::Url(_)), "{bad}");
            let words = error.to_string();
            assert!(
                !words.contains("secret") && !words.contains("ret@"),
                "{words}"
            );
        }
    }
}
