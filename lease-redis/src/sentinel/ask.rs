//! One question to one sentinel.

use std::collections::HashMap;

use lease_core::{StoreError, StoreErrorKind};
use redis::{AsyncConnectionConfig, RedisError, Value, from_redis_value};
use tokio::time::{Instant, timeout_at};

use super::{Address, Named};
use crate::client::Client;
use crate::errors::{Phase, classify};

/// A host's name is never longer.
const LONGEST_HOST: usize = 253;

/// What a sentinel said: the primary, or that it knows none of that name.
pub(super) type Answer = Result<Option<Named>, StoreError>;

/// Asks who the primary is, until `end` at most.
pub(super) async fn primary(sentinel: &Client, name: &str, end: Instant) -> Answer {
    let place = sentinel.info().addr();
    match timeout_at(end, questions(sentinel, name, end)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(failure(&format!("sentinel {place}"), error)),
        Err(_) => Err(StoreError::unavailable(format!(
            "sentinel {place} did not answer in time; check that it runs and can be reached from \
             here"
        ))),
    }
}

async fn questions(
    sentinel: &Client,
    name: &str,
    end: Instant,
) -> Result<Option<Named>, RedisError> {
    let left = end.saturating_duration_since(Instant::now());
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(left));
    let mut connection = sentinel.connect(left, config).await?;
    let mut both = redis::Pipeline::with_capacity(2);
    // The second names the former one until the failover is complete.
    both.cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(name);
    both.cmd("SENTINEL").arg("MASTER").arg(name);
    let values = connection.send_all(&both, 2).await?;
    let mut values = values.into_iter().map(Value::extract_error);
    let (Some(address), Some(master)) = (values.next(), values.next()) else {
        return Err(odd("it gives no answer"));
    };
    let address: Option<(String, u16)> =
        from_redis_value(address?).map_err(|_| odd("it names no address"))?;
    let Some((host, port)) = address else {
        return Ok(None);
    };
    let address = address_of(&host, port).ok_or_else(|| odd("it names no address"))?;
    let master: HashMap<String, String> =
        from_redis_value(master?).map_err(|_| odd("it tells nothing of the primary"))?;
    let epoch = master.get("config-epoch").and_then(|n| n.parse().ok());
    Ok(Some(Named {
        address,
        epoch: epoch.ok_or_else(|| odd("it tells no epoch"))?,
    }))
}

/// As a sentinel names it, if it can be one.
fn address_of(host: &str, port: u16) -> Option<Address> {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = bare.unwrap_or(host);
    let good = !host.is_empty() && host.len() <= LONGEST_HOST && port != 0;
    good.then(|| Address {
        host: host.into(),
        port,
    })
}

fn odd(what: &'static str) -> RedisError {
    RedisError::from((redis::ErrorKind::UnexpectedReturnType, what))
}

/// In words that tell the sentinels' login from the servers'.
pub(crate) fn failure(who: &str, error: RedisError) -> StoreError {
    let refused = match error.code() {
        Some("NOAUTH" | "WRONGPASS") => true,
        None => error.kind() == redis::ErrorKind::AuthenticationFailed,
        _ => false,
    };
    let advice = match error.code() {
        _ if refused => {
            "give a login that the sentinels know as ?sentinel_user=…&sentinel_password=… (the one \
             before the hosts is that of the servers with data)"
        }
        Some("NOPERM") => {
            "give the sentinels' user the rights that the page of lease-redis lists: \
             +sentinel|get-master-addr-by-name +sentinel|master"
        }
        Some("ERR") => "check that sentinels listen there, and not servers with data",
        _ => return classify(Phase::Unsent, who, error),
    };
    let words = error.to_string();
    let words = words.trim_end_matches('.');
    let message = format!("{who}: {words}; {advice}");
    StoreError::with_source(StoreErrorKind::Refusing, message, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_an_address_is_none() {
        let shown = |host: &str, port| address_of(host, port).map(|one| one.to_string());
        assert_eq!(shown("10.0.0.1", 1).as_deref(), Some("10.0.0.1:1"));
        assert_eq!(shown("[::1]", 1).as_deref(), Some("[::1]:1"));
        assert_eq!(shown("::1", 1).as_deref(), Some("[::1]:1"));
        for (host, port) in [("", 1), ("[]", 1), ("a", 0), (&*"a".repeat(254), 1)] {
            assert_eq!(shown(host, port), None);
        }
    }
}
