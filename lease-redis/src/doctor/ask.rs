//! Questions to the server: to each an answer, a refusal, or silence.
//!
//! They travel together: a server far away, the one that most needs a look,
//! would take too long to ask one by one.

use std::fmt;

use lease_core::StoreError;
use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value, from_redis_value};

use crate::errors::{Phase, classify};

/// What the server said to a question.
pub(super) type Answer<T> = Result<T, Refusal>;

/// Why it did not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The user has no right to the command.
    Command,
    /// The user has no right to the key.
    Key,
    /// The user has no right to the channel.
    Channel,
    /// The server knows no such command, or not in this form.
    UnknownCommand,
    /// Another error, by its code.
    Error(String),
    /// It answered something else than was asked for.
    Odd,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command => f.write_str("the user may not ask"),
            Self::Key => f.write_str("the user may not use the key"),
            Self::Channel => f.write_str("the user may not use the channel"),
            Self::UnknownCommand => f.write_str("the server does not know the command"),
            Self::Error(code) => write!(f, "the server answers {code}"),
            Self::Odd => f.write_str("the answer cannot be read"),
        }
    }
}

impl Refusal {
    /// The words have changed over the versions, and newer ones name the user:
    /// they are read for their sense and never shown.
    fn of(code: &str, words: &str) -> Self {
        let words = words.to_ascii_lowercase();
        match code {
            "NOPERM" if words.contains("to run the") => Self::Command,
            "NOPERM" if words.contains("channel") => Self::Channel,
            "NOPERM" if words.contains("key") => Self::Key,
            "NOPERM" => Self::Command,
            "ERR" if words.starts_with("unknown") => Self::UnknownCommand,
            other => Self::Error(other.to_owned()),
        }
    }
}

/// What is asked in one round trip.
#[derive(Default)]
pub(super) struct Questions(Pipeline);

/// Which question it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

/// What the server said, question by question.
#[derive(Debug)]
pub(super) struct Answers(Vec<Answer<Value>>);

impl Questions {
    pub(super) fn put(&mut self, command: Cmd) -> Place {
        let place = Place(self.0.len());
        self.0.add_command(command);
        place
    }

    /// Asks them all.
    ///
    /// # Errors
    /// Silence only.
    pub(super) async fn ask(
        self,
        connection: &mut (impl ConnectionLike + Send),
    ) -> Result<Answers, StoreError> {
        if self.0.is_empty() {
            return Ok(Answers(Vec::new()));
        }
        // Not by the pipeline itself: it would make one refusal one of them all.
        let asked = connection.req_packed_commands(&self.0, 0, self.0.len());
        let values = asked.await.map_err(silence)?;
        let answer = |value: Value| match value.extract_error() {
            Ok(value) => Ok(Ok(value)),
            Err(error) => refusal(error).map(Err),
        };
        Ok(Answers(
            values.into_iter().map(answer).collect::<Result<_, _>>()?,
        ))
    }
}

impl Answers {
    pub(super) fn hear<T: FromRedisValue>(&self, place: Place) -> Answer<T> {
        let answer = self.0.get(place.0).cloned().unwrap_or(Err(Refusal::Odd));
        from_redis_value(answer?).map_err(|_| Refusal::Odd)
    }
}

fn refusal(error: RedisError) -> Result<Refusal, StoreError> {
    match error.code() {
        Some(code) => Ok(Refusal::of(code, error.detail().unwrap_or_default())),
        None => Err(silence(error)),
    }
}

fn silence(error: RedisError) -> StoreError {
    classify(Phase::Unsent, "Redis stopped answering", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_versions_words_are_understood() {
        let of = |words| Refusal::of("NOPERM", words);
        // 6.0, 7.0, and 7.2 with a user whose name misleads.
        let run = "this user has no permissions to run the 'get' command or its subcommand";
        assert_eq!(of(run), Refusal::Command);
        let run = "User channelkey has no permissions to run the 'get' command";
        assert_eq!(of(run), Refusal::Command);
        let key = "this user has no permissions to access one of the keys used as arguments";
        assert_eq!(of(key), Refusal::Key);
        assert_eq!(of("No permissions to access a key"), Refusal::Key);
        let channel =
            "this user has no permissions to access one of the channels used as arguments";
        assert_eq!(of(channel), Refusal::Channel);
        assert_eq!(of("No permissions to access a channel"), Refusal::Channel);
        assert_eq!(of(""), Refusal::Command);
        let unknown = Refusal::of("ERR", "unknown command 'CONFIG', with args beginning with:");
        assert_eq!(unknown, Refusal::UnknownCommand);
        assert_eq!(Refusal::of("OOM", "x"), Refusal::Error("OOM".to_owned()));
    }
}
