//! The options of a store URL: what stands after its `?`.

use std::time::Duration;

use lease_core::{InvalidInput, Ttl};

use super::{Scheme, bad, percent_decoded};
use crate::RedisOptions;
#[cfg(feature = "tls")]
use crate::client;
use crate::names::Names;

const OPTIONS: &str = "prefix, mark_retention_ms, tombstone_retention_ms, quarantine_ms, \
                       wait_replicas, wait_timeout_ms, durable, response_timeout_ms, \
                       connect_timeout_ms and protocol, with rediss:// ca, cert and key, with a \
                       unix socket db, user and pass, and with redis+sentinel:// sentinel_user and \
                       sentinel_password";

#[derive(Default)]
pub(super) struct Query {
    /// What the driver reads, as it was written.
    pub(super) driver: Option<String>,
    #[cfg(feature = "tls")]
    pub(super) files: client::tls::Files,
    prefix: Option<Names>,
    mark_retention: Option<Duration>,
    tombstone_retention: Option<Duration>,
    quarantine: Option<Ttl>,
    wait_replicas: Option<u32>,
    wait_timeout: Option<Duration>,
    durable: Option<bool>,
    response_timeout: Option<Duration>,
    connect_timeout: Option<Duration>,
}

impl Query {
    pub(super) fn read(text: Option<&str>, scheme: Scheme) -> Result<Self, InvalidInput> {
        let mut query = Self::default();
        let mut seen = Vec::new();
        for pair in text.into_iter().flat_map(|text| text.split('&')) {
            let (name, value) = pair.split_once('=').ok_or_else(unknown)?;
            if value.contains('+') {
                // A space to some readers of URLs, and a plus to others.
                return Err(bad(format!(
                    "{} in a Redis URL holds a +; write a plus as %2B and a space as %20",
                    shown(name)
                )));
            }
            if seen.contains(&name) {
                return Err(bad(format!("{} is twice in a Redis URL", shown(name))));
            }
            seen.push(name);
            query.set(name, value, pair, scheme)?;
        }
        if query.wait_replicas.is_some() != query.wait_timeout.is_some() {
            return Err(bad(
                "wait_replicas and wait_timeout_ms belong together in a Redis URL; give both or \
                 neither",
            ));
        }
        Ok(query)
    }

    fn set(
        &mut self,
        name: &str,
        value: &str,
        pair: &str,
        scheme: Scheme,
    ) -> Result<(), InvalidInput> {
        match name {
            "prefix" => self.prefix = Some(Names::new(&decoded(value)?)?),
            "mark_retention_ms" => self.mark_retention = Some(millis(name, value)?),
            "tombstone_retention_ms" => self.tombstone_retention = Some(millis(name, value)?),
            "quarantine_ms" => {
                let max_ttl = Ttl::new(millis(name, value)?)
                    .map_err(|error| bad(format!("quarantine_ms in a Redis URL: {error}")))?;
                self.quarantine = Some(max_ttl);
            }
            "wait_replicas" => self.wait_replicas = Some(number(name, value, "")?),
            "wait_timeout_ms" => self.wait_timeout = Some(millis(name, value)?),
            "durable" => {
                self.durable = Some(match value {
                    "true" => true,
                    "false" => false,
                    _ => return Err(bad("durable in a Redis URL needs true or false")),
                });
            }
            "response_timeout_ms" => self.response_timeout = Some(millis(name, value)?),
            "connect_timeout_ms" => self.connect_timeout = Some(millis(name, value)?),
            "protocol" => {
                if !matches!(value, "2" | "resp2" | "3" | "resp3") {
                    return Err(bad("protocol in a Redis URL needs resp2 or resp3"));
                }
                self.pass_on(pair);
            }
            "db" if scheme == Scheme::Unix => {
                number::<u32>(name, value, "")?;
                self.pass_on(pair);
            }
            "user" | "pass" if scheme == Scheme::Unix => self.pass_on(pair),
            #[cfg(feature = "tls")]
            "ca" if scheme == Scheme::Tls => self.files.authority = Some(decoded(value)?),
            #[cfg(feature = "tls")]
            "cert" if scheme == Scheme::Tls => self.files.certificate = Some(decoded(value)?),
            #[cfg(feature = "tls")]
            "key" if scheme == Scheme::Tls => self.files.key = Some(decoded(value)?),
            _ => {
                return Err(bad(format!(
                    "{} is not an option of such a Redis URL; known are {OPTIONS}",
                    shown(name)
                )));
            }
        }
        Ok(())
    }

    fn pass_on(&mut self, pair: &str) {
        let driver = self.driver.get_or_insert_default();
        if !driver.is_empty() {
            driver.push('&');
        }
        driver.push_str(pair);
    }

    pub(super) fn apply(self, mut options: RedisOptions) -> RedisOptions {
        if let Some(names) = self.prefix {
            options.names = names;
        }
        if let Some(retention) = self.mark_retention {
            options = options.mark_retention(retention);
        }
        if let Some(retention) = self.tombstone_retention {
            options = options.tombstone_retention(retention);
        }
        if let Some(max_ttl) = self.quarantine {
            options = options.quarantine(max_ttl);
        }
        if let (Some(replicas), Some(within)) = (self.wait_replicas, self.wait_timeout) {
            options = options.wait_for_replicas(replicas, within);
        }
        if let Some(durable) = self.durable {
            options = options.durable(durable);
        }
        if let Some(limit) = self.response_timeout {
            options = options.response_timeout(limit);
        }
        if let Some(limit) = self.connect_timeout {
            options = options.connect_timeout(limit);
        }
        options
    }
}

fn unknown() -> InvalidInput {
    bad(format!(
        "the options of a Redis URL are written ?name=value&name=value; known are {OPTIONS}"
    ))
}

/// The name of an option, if it looks like one.
fn shown(name: &str) -> &str {
    let like_one = (1..=32).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if like_one { name } else { "something" }
}

fn number<T: std::str::FromStr>(name: &str, value: &str, of: &str) -> Result<T, InvalidInput> {
    // `parse` would take a leading plus.
    let digits = value.bytes().all(|b| b.is_ascii_digit());
    let number = digits.then(|| value.parse().ok()).flatten();
    number.ok_or_else(|| bad(format!("{name} in a Redis URL needs a whole number{of}")))
}

fn millis(name: &str, value: &str) -> Result<Duration, InvalidInput> {
    number(name, value, " of milliseconds").map(Duration::from_millis)
}

pub(super) fn decoded(value: &str) -> Result<String, InvalidInput> {
    percent_decoded(value).ok_or_else(|| bad("an option of a Redis URL is not UTF-8"))
}
