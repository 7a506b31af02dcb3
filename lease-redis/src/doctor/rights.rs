//! Whether the user may do what the store does.

use lease_core::{Finding, Severity};

use super::account::User;
use super::ask::{Answer, Refusal};
use super::info::Info;
use super::probes::{Probe, Tried};
use super::settings::Settings;
use super::{Facts, LOOK, healthy, note, unchecked, unknown, warning};

/// What the server lets the user do.
#[derive(Clone, Debug)]
pub(super) struct Rights {
    pub(super) tried: Tried,
    pub(super) user: User,
    /// Whether the default user may do everything; `None` when it cannot be
    /// found out.
    pub(super) default: Option<bool>,
}

impl Rights {
    /// The server reads its append-only file back with the rights of the
    /// default user (redis#14541, valkey#3983).
    pub(super) fn replay(&self, info: &Answer<Info>, facts: &Facts) -> Option<Finding> {
        let aof = info.as_ref().ok().and_then(|info| info.flag("aof_enabled"));
        let why = "in a restart the server reads the file back with the rights of the default \
                   user, and without a word leaves out what that one may not do: leases and marks";
        let advice = "ACL SETUSER default off ~* &* +@all: it stays off, and may do everything";
        match (aof, self.default) {
            (Some(true), Some(false)) => {
                let what = "persistence: the default user may not replay the append-only file";
                Some(Finding::new(Severity::Critical, what, why).advice(advice))
            }
            (None, Some(false)) => {
                let what = "persistence: the default user may not replay an append-only file, if \
                            there is one";
                Some(warning(what, why).advice(advice))
            }
            (Some(true), None) => {
                let what = "rights of the default user";
                let why = "the append-only file is read back with them in a restart, and what \
                           that user may not do is left out";
                let reason = "the user may not ask; look by ACL GETUSER default";
                Some(if facts.durable {
                    unchecked(what, why, reason)
                } else {
                    unknown(what, why, reason).advice(LOOK)
                })
            }
            _ => None,
        }
    }

    pub(super) fn judge(&self, settings: &Settings, facts: &Facts) -> Vec<Finding> {
        let missing = self.tried.missing.iter();
        let mut findings: Vec<_> = missing
            .map(|(probe, refusal)| probe.missing(refusal, facts))
            .collect();
        let subscribe = Probe {
            command: facts.wake_ups().1.to_owned(),
            severity: Severity::Warning,
            breaks: "who waits for a key is not woken up",
        };
        match self.user.subscribe {
            Some(true) => {}
            Some(false) => findings.push(subscribe.missing(&Refusal::Command, facts)),
            None => findings.push(unknown(
                &format!("right to {}", facts.wake_ups().1),
                "without it who waits for a key is not woken up and waits for its timer",
                "the user may not ask, or the server is older than Redis 7",
            )),
        }
        if findings
            .iter()
            .all(|finding| finding.severity <= Severity::Note)
        {
            let names = facts.names.everything();
            findings.insert(
                0,
                healthy(
                    format!("rights: what the store does with {names} is allowed"),
                    "a right that is missing shows only when it is needed",
                ),
            );
        }
        findings.extend(self.password(settings));
        findings
    }

    fn password(&self, settings: &Settings) -> Option<Finding> {
        let why = "whoever reaches the server may free, take and fence any lease";
        match self.user.open {
            Some(true) => {
                let what = match settings.yes("protected-mode") {
                    Some(true) => "login: none is needed, from this machine alone (protected-mode)",
                    Some(false) => "login: none is needed, from anywhere (protected-mode no)",
                    None => "login: none is needed",
                };
                let advice = "set a password or users (ACL), and keep the port to your own network";
                Some(note(what, why).advice(advice))
            }
            Some(false) => Some(healthy("login: by a password or a certificate", why)),
            None => None,
        }
    }
}
