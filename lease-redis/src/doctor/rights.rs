//! Whether the user may do what the store does.
//!
//! Each right is tried by a request that changes nothing: the server looks at
//! the rights first and then finds nothing to do, or turns it down for another
//! reason. Only SUBSCRIBE cannot be tried on a connection that others share.

use std::collections::HashMap;

use lease_core::{Finding, Severity, StoreError};
use redis::aio::ConnectionLike;
use redis::{Cmd, Value};

use super::ask::{Answer, Refusal, ask};
use super::info::Info;
use super::settings::Settings;
use super::{Facts, healthy, note, unknown};

/// What the server lets the user do.
#[derive(Clone, Debug)]
pub(super) struct Rights {
    tried: Vec<Tried>,
    /// `None` when it cannot be found out.
    subscribe: Option<bool>,
    /// Whether the user is the default one and needs no password.
    open: Option<bool>,
    /// Whether the default user may do everything; `None` when it cannot be
    /// found out.
    default: Option<bool>,
}

#[derive(Clone, Debug)]
struct Tried {
    command: &'static str,
    /// When it is missing.
    severity: Severity,
    breaks: &'static str,
    refusal: Option<Refusal>,
}

fn probes(facts: &Facts) -> Vec<(&'static str, Cmd, Severity, &'static str)> {
    use Severity::{Critical, Note, Warning};
    let name = facts.names.nobody();
    let command = |words: &[&str]| {
        let mut command = Cmd::new();
        command.arg(words);
        command
    };
    let nothing = "nothing can be acquired or renewed";
    let unknown_script = "0".repeat(40);
    let mut probes = vec![
        (
            "EVAL",
            command(&["EVAL", "return 1", "0"]),
            Critical,
            nothing,
        ),
        (
            "EVALSHA",
            command(&["EVALSHA", &unknown_script, "0"]),
            Critical,
            nothing,
        ),
        ("TIME", command(&["TIME"]), Critical, nothing),
        ("GET", command(&["GET", &name]), Critical, nothing),
        // An option that no version knows: looked at after the rights.
        (
            "SET",
            command(&["SET", &name, "", "NOTHING"]),
            Critical,
            nothing,
        ),
        // No time at all is refused, after the look at the rights.
        (
            "PSETEX",
            command(&["PSETEX", &name, "0", ""]),
            Critical,
            nothing,
        ),
        // Nothing at the start of nothing: makes no key.
        (
            "SETRANGE",
            command(&["SETRANGE", &name, "0", ""]),
            Critical,
            "nothing can be released",
        ),
        (
            "PTTL",
            command(&["PTTL", &name]),
            Critical,
            "nothing can be given up or fenced",
        ),
        (
            "PUBLISH",
            command(&["PUBLISH", &name, ""]),
            Warning,
            "nobody who waits is woken up",
        ),
        (
            "SCAN",
            command(&["SCAN", "0", "MATCH", &name, "COUNT", "1"]),
            Warning,
            "keys cannot be listed",
        ),
    ];
    let info = match facts.quarantine {
        Some(_) => (
            Critical,
            "the quarantine cannot tell a restart, and nothing can be acquired",
        ),
        None => (Note, "the doctor sees little"),
    };
    probes.push(("INFO", command(&["INFO", "server"]), info.0, info.1));
    if facts.wait.is_some() {
        // For no replica: answered at once.
        let wait = command(&["WAIT", "0", "1"]);
        probes.push(("WAIT", wait, Critical, "no grant can wait for its replicas"));
    }
    probes
}

impl Rights {
    pub(super) async fn probe(
        connection: &mut (impl ConnectionLike + Send),
        facts: &Facts,
    ) -> Result<Self, StoreError> {
        let mut tried = Vec::new();
        for (command, request, severity, breaks) in probes(facts) {
            let refusal = ask::<Value>(connection, request).await?.err();
            let refusal = refusal.filter(|refusal| {
                // Any other error came after the look at the rights.
                !matches!(refusal, Refusal::Error(_) | Refusal::Odd)
            });
            tried.push(Tried {
                command,
                severity,
                breaks,
                refusal,
            });
        }
        let mut whoami = redis::cmd("ACL");
        whoami.arg("WHOAMI");
        let user: Answer<String> = ask(connection, whoami).await?;
        let (mut subscribe, mut open) = (None, None);
        if let Ok(user) = user {
            let channel = facts.names.nobody();
            let account = account(connection, &user).await?;
            subscribe = match dry_run(connection, &user, &channel).await? {
                None => account.as_ref().and_then(Account::everything),
                known => known,
            };
            open = match user.as_str() {
                "default" => account.map(|account| account.no_password),
                _ => Some(false),
            };
        }
        let default = account(connection, "default").await?;
        Ok(Self {
            tried,
            subscribe,
            open,
            default: default.map(|account| account.may_all()),
        })
    }

    /// The server reads its append-only file back with the rights of the
    /// default user (redis#14541, valkey#3983).
    pub(super) fn replay(&self, info: &Info) -> Option<Finding> {
        if info.flag("aof_enabled") != Some(true) || self.default == Some(true) {
            return None;
        }
        if self.default.is_none() {
            return Some(unknown(
                "rights of the default user",
                "the append-only file is read back with them in a restart, and what that user may \
                 not do is left out",
                "the user may not ask; look by ACL GETUSER default",
            ));
        }
        let what = "persistence: the default user may not replay the append-only file";
        let why = "in a restart the server reads the file back with the rights of the default \
                   user, and without a word leaves out what that one may not do: leases and marks";
        let advice = "ACL SETUSER default off ~* &* +@all: it stays off, and may do everything";
        Some(Finding::new(Severity::Critical, what, why).advice(advice))
    }

    pub(super) fn judge(&self, settings: &Settings, facts: &Facts) -> Vec<Finding> {
        let mut findings = Vec::new();
        for tried in &self.tried {
            findings.extend(
                tried
                    .refusal
                    .as_ref()
                    .map(|refusal| tried.missing(refusal, facts)),
            );
        }
        let subscribe = Tried {
            command: "SUBSCRIBE",
            severity: Severity::Warning,
            breaks: "who waits for a key is not woken up",
            refusal: Some(Refusal::Command),
        };
        match self.subscribe {
            Some(true) => {}
            Some(false) => findings.push(subscribe.missing(&Refusal::Command, facts)),
            None => findings.push(unknown(
                "right to SUBSCRIBE",
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
        match self.open {
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

impl Tried {
    fn missing(&self, refusal: &Refusal, facts: &Facts) -> Finding {
        let (command, everything) = (self.command, facts.names.everything());
        let (what, give) = match refusal {
            Refusal::Key => (
                format!("rights: {command} is not allowed for {everything}"),
                format!("~{everything}"),
            ),
            Refusal::Channel => (
                format!("rights: {command} is not allowed for the channels {everything}"),
                format!("&{everything}"),
            ),
            Refusal::UnknownCommand => (
                format!("rights: the server does not know {command}"),
                String::new(),
            ),
            _ => (
                format!("rights: {command} is not allowed"),
                format!("+{}", command.to_lowercase()),
            ),
        };
        let advice = match give.as_str() {
            "" => format!("see whether rename-command took {command} away"),
            _ => format!("ACL SETUSER <the store's user> {give}"),
        };
        Finding::new(self.severity, what, format!("without it {}", self.breaks)).advice(advice)
    }
}

/// What ACL GETUSER says of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    no_password: bool,
    commands: String,
    keys: bool,
    channels: bool,
}

impl Account {
    /// `Some(true)` when every command and channel is allowed, else not known.
    fn everything(&self) -> Option<bool> {
        (self.channels && self.commands == "+@all").then_some(true)
    }

    fn may_all(&self) -> bool {
        self.keys && self.everything() == Some(true)
    }
}

async fn account(
    connection: &mut (impl ConnectionLike + Send),
    user: &str,
) -> Result<Option<Account>, StoreError> {
    let mut command = redis::cmd("ACL");
    command.arg("GETUSER").arg(user);
    let answer = ask::<HashMap<String, Value>>(connection, command).await?;
    Ok(answer.ok().map(|fields| {
        // A list of words, or one text, by the version.
        let words = |name: &str| -> Vec<String> {
            let value = fields.get(name).cloned().unwrap_or(Value::Nil);
            redis::from_redis_value(value).unwrap_or_default()
        };
        let (keys, channels) = (words("keys"), words("channels"));
        Account {
            no_password: words("flags").iter().any(|flag| flag == "nopass"),
            commands: words("commands").join(" "),
            keys: keys.iter().any(|key| key == "~*" || key == "*"),
            channels: channels
                .iter()
                .any(|channel| channel == "&*" || channel == "*"),
        }
    }))
}

/// Redis 7 says what a command would meet; `None` when it does not say.
async fn dry_run(
    connection: &mut (impl ConnectionLike + Send),
    user: &str,
    channel: &str,
) -> Result<Option<bool>, StoreError> {
    let mut command = redis::cmd("ACL");
    command
        .arg("DRYRUN")
        .arg(user)
        .arg("SUBSCRIBE")
        .arg(channel);
    let answer = ask::<String>(connection, command).await?;
    Ok(answer.ok().map(|words| words == "OK"))
}
