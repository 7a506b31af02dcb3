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

const MODES: &str = "one of disable, allow, prefer, require, verify-ca and verify-full";

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
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|port| port > 0);
    readable("PGPORT", "a port, a whole number from 1 to 65535", is_port)?;
    let is_mode = |text: &str| text.parse::<PgSslMode>().is_ok();
    readable("PGSSLMODE", MODES, is_mode)?;
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
    let host = address(authority, host)?;
    let mut query = Query::default();
    for pair in options.into_iter().flat_map(|o| o.split('&')) {
        query.read(pair)?;
    }
    if let Some(bare) = host
        && !query.seen.iter().any(|seen| seen == "host")
    {
        // The driver would look for a host with the brackets in its name.
        query.drivers.push(format!("host={bare}"));
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

/// Sees to it that the driver can read a host and its port; what stands in
/// brackets, if anything does.
fn address<'h>(authority: &str, host: &'h str) -> Result<Option<&'h str>, InvalidInput> {
    let (name, after, bare) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((bare, after)) => (bare, after, Some(bare)),
        None => match host.rfind(':') {
            Some(colon) => (&host[..colon], &host[colon..], None),
            None => (host, "", None),
        },
    };
    if bare.is_none() && name.contains(':') {
        return Err(bad(format!(
            "an IPv6 address in a Postgres URL stands in brackets, as in \
             postgres://user@[::1]:5432/database; {FORMS}"
        )));
    }
    if name.is_empty() && !authority.is_empty() {
        return Err(bad(
            "a Postgres URL with a user or a port in front of the / names the host there, too; for \
             a socket write postgres:///database?host=/folder/of/the/socket&user=name",
        ));
    }
    match after.strip_prefix(':') {
        Some("") => {}
        Some(number) => port(number)?,
        None if after.is_empty() => {}
        None => {
            return Err(bad(format!(
                "the host of a Postgres URL cannot be read; {FORMS}"
            )));
        }
    }
    Ok(bare)
}

fn port(text: &str) -> Result<(), InvalidInput> {
    match text.parse::<u16>() {
        Ok(1..) => Ok(()),
        _ => Err(bad(format!(
            "a port in a Postgres URL is a whole number from 1 to 65535; {FORMS}"
        ))),
    }
}

/// Values that the driver refuses without a word on which it was.
fn driver_reads(name: &str, value: &str) -> Result<(), InvalidInput> {
    match name {
        "port" => port(value),
        "sslmode" if value.parse::<PgSslMode>().is_err() => {
            Err(bad(format!("sslmode in a Postgres URL is {MODES}")))
        }
        _ => Ok(()),
    }
}

/// The driver would take what it cannot read for what is not set: `verify_full`,
/// written so, for no check at all.
fn readable(name: &str, what: &str, is: impl Fn(&str) -> bool) -> Result<(), InvalidInput> {
    match env::var_os(name) {
        Some(value) if !value.to_str().is_some_and(is) => Err(bad(format!(
            "the environment variable {name} cannot be read: it is {what}; set it so, or unset it"
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
        let value = percent_decoded(value).ok_or_else(|| {
            bad(
                "a % in a Postgres URL is not followed by two hexadecimal digits, or they are not \
                 UTF-8; write % as %25",
            )
        })?;
        if DRIVERS.contains(&name) {
            driver_reads(name, &value)?;
            self.drivers.push(pair.to_owned());
        } else {
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
mod tests;
