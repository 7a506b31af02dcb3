//! `redis+sentinel://login@host:port,host:port/name/database?options`

use lease_core::InvalidInput;
use redis::{ConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use super::hosts::Hosts;
use super::{bad, percent_decoded};
use crate::client::{self, Client};
use crate::options::RedisOptions;
use crate::sentinel::Sentinels;
use crate::servers::Servers;

const PORT: u16 = 26379;
const MAX_NAME_BYTES: usize = 128;
const FORM: &str = "write redis+sentinel://user:password@host:26379,host:26379/name/0";

/// Whether these sentinels and their servers speak TLS; `None` for the scheme of
/// something else.
pub(super) fn tls(text: &str) -> Option<bool> {
    let (scheme, _) = text.split_once("://")?;
    match scheme.to_ascii_lowercase().as_str() {
        "redis+sentinel" | "valkey+sentinel" => Some(false),
        "rediss+sentinel" | "valkeys+sentinel" => Some(true),
        _ => None,
    }
}

pub(super) fn parse(text: &str, tls: bool) -> Result<RedisOptions, InvalidInput> {
    let hosts = Hosts::read(text, PORT)?;
    let (name, db) = named(hosts.path())?;
    let (login, query) = login(hosts.query())?;
    let scheme = if tls { "rediss" } else { "redis" };
    // Everything but where the servers are is the same as for one server.
    let Some(any) = hosts.servers().first() else {
        return Err(bad(format!("a Redis URL names no host; {FORM}")));
    };
    let mut options = super::parse(&hosts.url(scheme, any, db, query.as_deref()))?;
    let files = files(query.as_deref());
    let clients = hosts
        .servers()
        .iter()
        .map(|server| {
            let url = format!("{scheme}://{server}/?{files}");
            let url = url.trim_end_matches('?');
            let one = super::parse(url)?;
            let one = one.servers.client();
            let info = client::named(as_user(one.info().clone(), &login));
            one.with(info).map_err(super::not_taken)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let node = options.servers.client().clone();
    options.servers = Servers::sentinels(self::sentinels(clients, &name, node)?);
    Ok(options)
}

/// Checks what a URL or a program names.
pub(crate) fn sentinels(
    clients: Vec<Client>,
    name: &str,
    node: Client,
) -> Result<Sentinels, InvalidInput> {
    if clients.is_empty() {
        return Err(bad("there are no sentinels to ask; name one at least"));
    }
    // What Sentinel itself takes.
    let takes = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !name.bytes().all(takes) {
        return Err(bad(format!(
            "the name of a primary has letters, digits, '.', '-' and '_', 1 to {MAX_NAME_BYTES} of \
             them, and no others; {FORM}"
        )));
    }
    Ok(Sentinels::new(clients, name.to_owned(), node))
}

/// The name of the primary, and the database as it was written.
fn named(path: &str) -> Result<(String, &str), InvalidInput> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let (name, db) = path.split_once('/').unwrap_or((path, ""));
    if name.is_empty() {
        return Err(bad(format!(
            "the URL of Redis's sentinels does not say what they call the primary; {FORM}"
        )));
    }
    if !db.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad(format!(
            "after the name of the primary comes the number of the database; {FORM}"
        )));
    }
    let name = percent_decoded(name).unwrap_or_default();
    Ok((name, db))
}

#[derive(Default)]
struct Login {
    user: Option<String>,
    password: Option<String>,
}

/// The sentinels' own login, and the options that are left.
fn login(query: Option<&str>) -> Result<(Login, Option<String>), InvalidInput> {
    let mut login = Login::default();
    let mut left = Vec::new();
    for pair in query.into_iter().flat_map(|query| query.split('&')) {
        let (place, value) = match pair.split_once('=') {
            Some(("sentinel_user", value)) => (&mut login.user, value),
            Some(("sentinel_password", value)) => (&mut login.password, value),
            _ => {
                left.push(pair);
                continue;
            }
        };
        if value.is_empty() || value.contains('+') {
            return Err(bad(
                "sentinel_user and sentinel_password in a Redis URL are not empty, and hold no +; \
                 write a plus as %2B and a space as %20",
            ));
        }
        if place.replace(super::query::decoded(value)?).is_some() {
            return Err(bad(
                "sentinel_user or sentinel_password is twice in a Redis URL",
            ));
        }
    }
    if login.user.is_some() && login.password.is_none() {
        return Err(bad(
            "a Redis URL has a sentinel_user and no sentinel_password; give both, or a password \
             alone for the default user",
        ));
    }
    let left = (!left.is_empty()).then(|| left.join("&"));
    Ok((login, left))
}

fn as_user(info: ConnectionInfo, login: &Login) -> ConnectionInfo {
    // Sentinels have no databases, and need nothing of the newer protocol.
    let mut settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2);
    if let Some(user) = &login.user {
        settings = settings.set_username(user);
    }
    if let Some(password) = &login.password {
        settings = settings.set_password(password);
    }
    info.set_redis_settings(settings)
}

/// The options that name files of TLS: the sentinels have the same authority.
fn files(query: Option<&str>) -> String {
    let pairs = query.into_iter().flat_map(|query| query.split('&'));
    let files = pairs.filter(|pair| {
        let name = pair.split_once('=').map(|(name, _)| name);
        matches!(name, Some("ca" | "cert" | "key"))
    });
    files.collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests;
