//! Store URLs.
//!
//! The driver reads where the server is and how to log in; its errors are not
//! passed on where they could quote the URL.

mod cluster;
mod hosts;
mod query;
mod sentinel;

use lease_core::InvalidInput;
use redis::IntoConnectionInfo;

use crate::RedisOptions;
use crate::client::{self, Client};
use crate::servers::Servers;
pub(crate) use hosts::Hosts;
use query::Query;
pub(crate) use sentinel::sentinels;

const FORMS: &str = "write redis://user:password@host:6379/0, rediss://… for TLS, or \
                     redis+unix:///path/to/socket, and special characters in it as %40 and the like";

const MISPLACED: &str = "a Redis URL has an @ after the host; in a user name or password write / \
                         as %2F, ? as %3F and # as %23, and an @ as %40 anywhere";

fn bad(why: impl Into<String>) -> InvalidInput {
    InvalidInput::Url(why.into())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Tcp,
    Tls,
    Unix,
}

pub(crate) fn parse(text: &str) -> Result<RedisOptions, InvalidInput> {
    if let Some(tls) = sentinel::tls(text) {
        return sentinel::parse(text, tls);
    }
    if let Some(tls) = cluster::tls(text) {
        return cluster::parse(text, tls);
    }
    check_characters(text)?;
    let mut url = redis::parse_redis_url(text)
        .ok_or_else(|| bad(format!("not a Redis URL, or a malformed one; {FORMS}")))?;
    let scheme = match url.scheme() {
        "rediss" | "valkeys" => Scheme::Tls,
        "redis" | "valkey" => Scheme::Tcp,
        _ => Scheme::Unix,
    };
    if scheme == Scheme::Tls && !cfg!(feature = "tls") {
        return Err(bad(
            "rediss:// needs the cargo feature `tls` of lease-redis; turn it on",
        ));
    }
    // A special character in a password that is not encoded puts the rest of
    // the password there, and some other host in front.
    let misplaced = |part: Option<&str>| part.is_some_and(|part| part.contains('@'));
    if misplaced(Some(url.path())) || misplaced(url.query()) || misplaced(url.fragment()) {
        return Err(bad(MISPLACED));
    }
    if url.fragment().is_some() {
        return Err(bad(
            "a Redis URL ends with no # part; #insecure is not supported: name the authority of \
             the server's certificate by ?ca=/path/authority.pem instead",
        ));
    }
    match scheme {
        Scheme::Unix => check_socket(
            url.path(),
            url.host_str(),
            !url.username().is_empty() || url.password().is_some(),
        )?,
        Scheme::Tcp | Scheme::Tls => check_server(url.path(), url.host_str())?,
    }
    let query = Query::read(url.query(), scheme)?;
    // The driver ignores what it does not know; it need not see it.
    url.set_query(query.driver.as_deref());
    let info = url
        .into_connection_info()
        .map_err(|error| match error.detail() {
            None => bad(format!("the driver takes no such Redis URL: {error}")),
            Some(_) => bad(format!("the driver takes no such Redis URL; {FORMS}")),
        })?;
    let login = info.redis_settings();
    if login.username().is_some() && login.password().is_none() {
        // The driver would leave the login out and be somebody else.
        return Err(bad(
            "a Redis URL has a user name and no password; write user:password@, or :password@ \
             for the default user",
        ));
    }
    let info = client::named(info);
    let client = Client::open(info).map_err(not_taken)?;
    #[cfg(feature = "tls")]
    let client = match scheme {
        Scheme::Tls => {
            let tls = client::tls::Tls::of(&query.files);
            client.by(tls.map_err(|why| bad(format!("a Redis URL: {why}")))?)
        }
        _ => client,
    };
    Ok(query.apply(RedisOptions::of(Servers::one(client))))
}

fn not_taken(_: redis::RedisError) -> InvalidInput {
    bad(format!("the driver takes no such Redis URL; {FORMS}"))
}

fn check_characters(text: &str) -> Result<(), InvalidInput> {
    // The driver's parser would drop or encode some of them in silence.
    if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(bad(
            "a Redis URL holds a space, a line's end or a control character; write a space as %20",
        ));
    }
    if percent_decoded(text).is_none() {
        return Err(bad(
            "a % in a Redis URL is not followed by two hexadecimal digits, or they are not UTF-8; \
             write % as %25",
        ));
    }
    Ok(())
}

fn check_server(path: &str, host: Option<&str>) -> Result<(), InvalidInput> {
    if host.is_none_or(str::is_empty) {
        return Err(bad(format!("a Redis URL names no host; {FORMS}")));
    }
    if !path.trim_matches('/').bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad(
            "after the host of a Redis URL comes the number of the database, such as /0",
        ));
    }
    Ok(())
}

fn check_socket(path: &str, host: Option<&str>, login: bool) -> Result<(), InvalidInput> {
    if login {
        return Err(bad(
            "the URL of a unix socket takes its login as ?user=…&pass=…",
        ));
    }
    let no_host = host.is_none_or(|host| host.is_empty() || host == "localhost");
    if !no_host || !path.starts_with('/') || path.trim_matches('/').is_empty() {
        return Err(bad(
            "the URL of a unix socket names no host, and an absolute path: \
             redis+unix:///path/to/socket",
        ));
    }
    Ok(())
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
