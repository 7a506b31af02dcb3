//! Somebody else's values at the names of leases.

use lease_conformance::servers::redis::{RedisServer, Reply};
use lease_conformance::{FixtureError, Spoil};
use lease_core::Key;

const TEXT: &str = "somebody else's";
/// None is kept for as long by the store itself, nor for ever.
const KEPT_MS: i64 = 3_600_000;

/// As the store spells it: the braces are its own.
pub(crate) fn name(key: &Key) -> String {
    let key = key.as_str();
    let key = key.replace('%', "%25");
    format!("leases:{{{}}}", key.replace('{', "%7B").replace('}', "%7D"))
}

/// A record by its head and its length, and nonsense in between.
fn torn() -> String {
    format!("L1g{}", "\u{7f}".repeat(60))
}

pub(crate) fn spoil(server: &RedisServer, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
    let name = self::name(key);
    let kept = KEPT_MS.to_string();
    server.command(&["DEL", &name])?;
    match how {
        Spoil::ForeignType => server.command(&["RPUSH", &name, TEXT])?,
        Spoil::ForeignText => server.command(&["SET", &name, TEXT, "PX", &kept])?,
        Spoil::Torn => server.command(&["SET", &name, &torn(), "PX", &kept])?,
        _ => return Ok(false),
    };
    Ok(true)
}

pub(crate) fn is_intact(server: &RedisServer, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
    let name = self::name(key);
    let left = server.command(&["PTTL", &name])?.integer();
    let (value, due) = match how {
        Spoil::ForeignType => (
            server.command(&["LRANGE", &name, "0", "-1"])?,
            Reply::List(vec![Reply::Bytes(TEXT.into())]),
        ),
        Spoil::ForeignText => (server.command(&["GET", &name])?, Reply::Bytes(TEXT.into())),
        _ => (
            server.command(&["GET", &name])?,
            Reply::Bytes(torn().into()),
        ),
    };
    let kept = match how {
        Spoil::ForeignType => left == Some(-1),
        _ => left.is_some_and(|ms| ms > KEPT_MS / 2 && ms <= KEPT_MS),
    };
    Ok(value == due && kept)
}
