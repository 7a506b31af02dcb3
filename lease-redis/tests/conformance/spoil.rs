//! Somebody else's values at the names of leases.

use async_trait::async_trait;
use lease_conformance::servers::redis::Reply;
use lease_conformance::{FixtureError, Spoil, Spoiling};
use lease_core::Key;

use crate::store::OwnServer;

const TEXT: &str = "somebody else's";
/// None is kept for as long by the store itself, nor for ever.
const KEPT_MS: i64 = 3_600_000;

/// As the store spells it: the braces are its own.
fn record(key: &Key) -> String {
    let key = key.as_str();
    let key = key.replace('%', "%25");
    format!("leases:{{{}}}", key.replace('{', "%7B").replace('}', "%7D"))
}

/// A record by its head and its length, and nonsense in between.
fn torn() -> String {
    format!("L1g{}", "\u{7f}".repeat(60))
}

#[async_trait]
impl Spoiling for OwnServer {
    async fn spoil(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        let name = record(key);
        let kept = KEPT_MS.to_string();
        self.server.command(&["DEL", &name])?;
        match how {
            Spoil::ForeignType => self.server.command(&["RPUSH", &name, TEXT])?,
            Spoil::ForeignText => self.server.command(&["SET", &name, TEXT, "PX", &kept])?,
            Spoil::Torn => self.server.command(&["SET", &name, &torn(), "PX", &kept])?,
            _ => return Ok(false),
        };
        Ok(true)
    }

    async fn spoiled_is_intact(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        let name = record(key);
        let left = self.server.command(&["PTTL", &name])?.integer();
        let (value, due) = match how {
            Spoil::ForeignType => (
                self.server.command(&["LRANGE", &name, "0", "-1"])?,
                Reply::List(vec![Reply::Bytes(TEXT.into())]),
            ),
            Spoil::ForeignText => (
                self.server.command(&["GET", &name])?,
                Reply::Bytes(TEXT.into()),
            ),
            _ => (
                self.server.command(&["GET", &name])?,
                Reply::Bytes(torn().into()),
            ),
        };
        let kept = match how {
            Spoil::ForeignType => left == Some(-1),
            _ => left.is_some_and(|ms| ms > KEPT_MS / 2 && ms <= KEPT_MS),
        };
        Ok(value == due && kept)
    }
}
