//! Who the user is, as the server's ACL tells it.

use std::collections::HashMap;

use lease_core::StoreError;
use redis::aio::ConnectionLike;
use redis::{Cmd, Value};

use super::Facts;
use super::ask::{Answers, Place, Questions};

/// What ACL says; `None` for what cannot be found out.
#[derive(Clone, Debug, Default)]
pub(super) struct User {
    /// Whether it may subscribe to the store's channels.
    pub(super) subscribe: Option<bool>,
    /// Whether it is the default user and needs no password.
    pub(super) open: Option<bool>,
}

/// Asks for the user's name.
pub(super) fn ask_name(questions: &mut Questions) -> Place {
    questions.put(acl(&["WHOAMI"]))
}

/// Asks for the default user.
pub(super) fn ask_default(questions: &mut Questions) -> Place {
    questions.put(acl(&["GETUSER", "default"]))
}

/// Whether the default user may do everything.
pub(super) fn default_may_all(answers: &Answers, asked: Place) -> Option<bool> {
    Some(Account::hear(answers, asked)?.may_all())
}

impl User {
    /// Goes and asks what its name is needed for.
    pub(super) async fn look(
        connection: &mut (impl ConnectionLike + Send),
        name: &str,
        facts: &Facts,
    ) -> Result<Self, StoreError> {
        let mut questions = Questions::default();
        let account = questions.put(acl(&["GETUSER", name]));
        // Redis 7 says what a command would meet. Subscribing itself would
        // change a connection that others share.
        let channel = facts.nobody();
        let (_, subscribe) = facts.wake_ups();
        let dry_run = questions.put(acl(&["DRYRUN", name, subscribe, &channel]));
        let answers = questions.ask(connection).await?;

        let account = Account::hear(&answers, account);
        let dry_run = answers.hear::<String>(dry_run).ok();
        Ok(Self {
            subscribe: match dry_run {
                Some(words) => Some(words == "OK"),
                None => account.as_ref().and_then(Account::everything),
            },
            open: match name {
                "default" => account.map(|account| account.no_password),
                _ => Some(false),
            },
        })
    }
}

fn acl(words: &[&str]) -> Cmd {
    let mut command = redis::cmd("ACL");
    command.arg(words);
    command
}

/// What ACL GETUSER says of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    no_password: bool,
    commands: String,
    keys: bool,
    channels: bool,
}

impl Account {
    fn hear(answers: &Answers, asked: Place) -> Option<Self> {
        let fields = answers.hear::<HashMap<String, Value>>(asked).ok()?;
        // A list of words, or one text, by the version.
        let words = |name: &str| -> Vec<String> {
            let value = fields.get(name).cloned().unwrap_or(Value::Nil);
            redis::from_redis_value(value).unwrap_or_default()
        };
        let (keys, channels) = (words("keys"), words("channels"));
        Some(Self {
            no_password: words("flags").iter().any(|flag| flag == "nopass"),
            commands: words("commands").join(" "),
            keys: keys.iter().any(|key| key == "~*" || key == "*"),
            channels: channels
                .iter()
                .any(|channel| channel == "&*" || channel == "*"),
        })
    }

    /// `Some(true)` when every command and channel is allowed, else not known.
    fn everything(&self) -> Option<bool> {
        (self.channels && self.commands == "+@all").then_some(true)
    }

    fn may_all(&self) -> bool {
        self.keys && self.everything() == Some(true)
    }
}
