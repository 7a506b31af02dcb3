//! Sends a script and reads what became of it.

use lease_core::{AdmitError, Key, StaleToken, StoreError, StoreErrorKind, Token};
use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use super::error::ScriptError;
use super::script::FencedScript;
use crate::errors::{Phase, classify};

/// One call of a script.
pub(super) struct Call<'a> {
    pub(super) script: &'a FencedScript,
    pub(super) resource: &'a Key,
    pub(super) token: Token,
    /// The name of the mark.
    pub(super) mark: String,
    pub(super) forget_ms: Option<u64>,
    pub(super) keys: Vec<Vec<u8>>,
    pub(super) args: Vec<Vec<u8>>,
}

impl Call<'_> {
    /// Runs it and gives what the caller's code returned.
    pub(super) async fn run(
        &self,
        connection: &mut (impl ConnectionLike + Send),
    ) -> Result<Value, ScriptError> {
        let sent = self.send(connection).await;
        let answer = sent.map_err(|error| self.refused(error))?;
        outcome(answer)
    }

    /// NOSCRIPT says that nothing ran, so the second request does nothing
    /// twice; it carries the code itself, which no SCRIPT FLUSH can take away
    /// in between.
    async fn send(
        &self,
        connection: &mut (impl ConnectionLike + Send),
    ) -> Result<Value, RedisError> {
        let by_hash = self.command("EVALSHA", self.script.hash());
        match by_hash.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let by_code = self.command("EVAL", self.script.code());
                by_code.query_async(connection).await
            }
            sent => sent,
        }
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = Cmd::new();
        command.arg(name).arg(script).arg(1 + self.keys.len());
        command.arg(&self.mark).arg(&self.keys);
        command.arg(self.token.get());
        match self.forget_ms {
            Some(ms) => command.arg(ms),
            None => command.arg(""),
        };
        command.arg(&self.args);
        command
    }

    /// An error of the whole call: the caller's code was not run, unless the
    /// outcome is unknown.
    fn refused(&self, error: RedisError) -> AdmitError {
        if let Some(stale) = stale_token(&error, self.resource, self.token) {
            return stale.into();
        }
        let doing = format!("admitting a token at {:?}", self.resource.as_str());
        let detail = error.detail().unwrap_or_default();
        if error.code() == Some("ERR") && detail.contains("compiling script") {
            return StoreError::new(
                StoreErrorKind::InvalidInput,
                format!("{doing}: the script does not compile, and nothing was run: {detail}"),
            )
            .into();
        }
        classify(Phase::Sent, &doing, error).into()
    }
}

/// Both tokens, if `error` is the refusal of a stale token by
/// [`ADMIT_LUA`](super::ADMIT_LUA) in a script of your own.
#[must_use]
pub fn stale_token(error: &RedisError, resource: &Key, presented: Token) -> Option<StaleToken> {
    if error.code() != Some("STALE") {
        return None;
    }
    // Servers may add to the text where the script is.
    let admitted = error.detail()?.split_whitespace().next()?.parse().ok()?;
    Some(StaleToken {
        resource: resource.clone(),
        presented,
        admitted,
    })
}

fn outcome(answer: Value) -> Result<Value, ScriptError> {
    let mut parts = match answer {
        Value::Array(parts) => parts.into_iter(),
        _ => return Err(strange()),
    };
    let (word, value) = (parts.next(), parts.next().unwrap_or(Value::Nil));
    match (word.as_ref().and_then(text), value) {
        (Some("ran"), value) => Ok(value),
        (Some("failed"), value) => Err(ScriptError::Failed {
            message: text(&value).unwrap_or("no words").to_owned(),
        }),
        _ => Err(strange()),
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// The value itself may be anything, also a secret: only its kind is told.
fn strange() -> ScriptError {
    StoreError::unknown_outcome(
        "the server answered a fenced script with what no server answers; the script may have run",
    )
    .into()
}
