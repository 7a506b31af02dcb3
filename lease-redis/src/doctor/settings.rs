//! What CONFIG GET says, setting by setting: asked for all at once, it would
//! also hand out passwords.

use std::collections::HashMap;

use lease_core::{Finding, StoreError};
use redis::aio::ConnectionLike;

use super::ask::{Refusal, ask};
use super::unknown;

const NAMES: [&str; 11] = [
    "save",
    "appendfsync",
    "no-appendfsync-on-rewrite",
    "stop-writes-on-bgsave-error",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "lua-time-limit",
    "timeout",
    "maxclients",
    "protected-mode",
    "client-output-buffer-limit",
];

/// The settings that could be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    values: HashMap<String, String>,
    refused: Option<Refusal>,
}

impl Settings {
    pub(super) async fn read(
        connection: &mut (impl ConnectionLike + Send),
    ) -> Result<Self, StoreError> {
        let mut settings = Self::default();
        for name in NAMES {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            match ask::<HashMap<String, String>>(connection, command).await? {
                Ok(found) => settings.values.extend(found),
                Err(refusal) => {
                    settings.refused = Some(refusal);
                    break;
                }
            }
        }
        Ok(settings)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// `yes` or `no`.
    pub(super) fn yes(&self, name: &str) -> Option<bool> {
        Some(self.text(name)? == "yes")
    }

    /// That they could not be read, if so.
    pub(super) fn judge(&self) -> Option<Finding> {
        let refusal = self.refused.as_ref()?;
        let what = "settings (CONFIG GET)";
        let why = "how often the server's disk is written, whom it disconnects and when it \
                   refuses writes are judged without them";
        Some(unknown(what, why, refusal).advice(
            "run the doctor as a user with the right +config|get; the store itself needs none",
        ))
    }

    #[cfg(test)]
    pub(super) fn of(values: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            values: values.iter().map(owned).collect(),
            refused: None,
        }
    }
}
