//! What CONFIG GET says, setting by setting: asked for all at once, it would
//! also hand out passwords.

use std::collections::HashMap;

use lease_core::Finding;

use super::ask::{Answers, Place, Questions, Refusal};
use super::{LOOK, unknown};

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
    pub(super) fn ask(questions: &mut Questions) -> Vec<Place> {
        let one = |name| {
            let mut command = redis::cmd("CONFIG");
            command.arg("GET").arg(name);
            questions.put(command)
        };
        NAMES.into_iter().map(one).collect()
    }

    pub(super) fn hear(answers: &Answers, asked: &[Place]) -> Self {
        let mut settings = Self::default();
        for place in asked {
            match answers.hear::<HashMap<String, String>>(*place) {
                Ok(found) => settings.values.extend(found),
                Err(refusal) => settings.refused = Some(refusal),
            }
        }
        settings
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
        Some(unknown(what, why, refusal).advice(LOOK))
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
