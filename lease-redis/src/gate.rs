//! Fenced writes: a token is checked in the script that writes.

mod error;
mod eval;
mod script;
mod store;
mod writes;

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use lease_core::{AdmitError, Gate, InvalidInput, Key, Token};
use redis::aio::ConnectionLike;
use redis::{FromRedisValue, ToRedisArgs, Value, from_redis_value};

pub use error::ScriptError;
pub use eval::stale_token;
pub use script::FencedScript;

use crate::names::Names;
use eval::Call;

/// The check of a token as a piece of Lua, for scripts of your own; in Rust,
/// [`FencedScript`] is easier.
///
/// It defines one local function, `lease_admit(mark, token [, forget_ms])`:
///
/// * `mark` is the name of the resource's mark, [`RedisGate::mark_name`]; hand
///   it over in `KEYS`. `token` is the token in decimal digits, as text.
///   `forget_ms` is a number of milliseconds, see
///   [`RedisGate::forget_after`]; leave it away to keep the mark for ever.
/// * When it returns nothing, the token is admitted and remembered: write.
/// * Otherwise it returns an error reply and has changed nothing: return that
///   and write nothing. `STALE 12` means that token 12 was admitted before
///   ([`stale_token`] reads it), `FOREIGN` and `WRONGTYPE` that something that
///   is not a mark stands at the name.
///
/// ```
/// let script = redis::Script::new(&format!(
///     "{}
///      local refused = lease_admit(KEYS[1], ARGV[1])
///      if refused then return refused end
///      return redis.call('INCRBY', KEYS[2], ARGV[2])",
///     lease_redis::ADMIT_LUA,
/// ));
/// ```
pub const ADMIT_LUA: &str = include_str!("gate/admit.lua");

/// A gate in Redis, over the caller's own connection: remembers the highest
/// token that each resource admitted, and refuses lower ones **in the same
/// atomic step as the write**.
///
/// ```no_run
/// # async fn f(lease_token: lease_core::Token) -> Result<(), Box<dyn std::error::Error>> {
/// use lease_core::Key;
/// use lease_redis::{FencedScript, RedisGate};
///
/// let client = redis::Client::open("redis://127.0.0.1/")?;
/// let gate = RedisGate::new(client.get_multiplexed_async_connection().await?);
/// let user = Key::new("user:7")?;
/// gate.set(&user, lease_token, "profile:{user:7}", "blue").await?;
///
/// let push = FencedScript::new("return redis.call('RPUSH', KEYS[1], ARGV[1])");
/// let length: u64 = gate
///     .script(&user, lease_token, &push, "history:{user:7}", "blue")
///     .await?;
/// # Ok(()) }
/// ```
///
/// # Where the mark lives
/// In the same Redis as the data, at `prefix:gate:{resource}`
/// ([`mark_name`](Self::mark_name)), for ever. What loses the mark (a flush, an
/// eviction, a failover, a restart without persistence) lets the next token in,
/// whatever it is. Something else at that name is a `Refusing` error and is
/// left alone.
///
/// **On a cluster**, the mark and the data must share a hash slot: name the
/// resource as the hash tag of the data's keys, `user:7` for
/// `profile:{user:7}`. A resource without `%`, `{` and `}` is its own tag.
///
/// # Rights
/// The user needs `+evalsha +eval +get +set`, the commands that its scripts
/// run, and both `~prefix:gate:*` and the data's keys.
#[derive(Clone)]
pub struct RedisGate<C> {
    connection: C,
    names: Names,
    forget_ms: Option<u64>,
}

impl<C> RedisGate<C> {
    /// A gate over `connection`, with the prefix `leases`. Asks the server
    /// nothing yet.
    #[must_use]
    pub fn new(connection: C) -> Self {
        Self {
            connection,
            names: Names::default(),
            forget_ms: None,
        }
    }

    /// Another prefix of the marks' names. Defaults to `leases`, as the
    /// store's. All gates of a resource must have the same one.
    ///
    /// # Errors
    /// [`InvalidInput`] for an empty or long one, braces or control characters.
    pub fn prefix(mut self, prefix: &str) -> Result<Self, InvalidInput> {
        self.names = Names::new(prefix)?;
        Ok(self)
    }

    /// Forgets a resource's mark when nothing was admitted there for this
    /// long, in milliseconds, rounded up. Defaults to never.
    ///
    /// **Dangerous**: a writer that was away for longer than this is let in
    /// with its old token. Choose far more than any process can be paused and
    /// any request delayed: days.
    ///
    /// # Errors
    /// [`InvalidInput`] for zero.
    pub fn forget_after(mut self, unused: Duration) -> Result<Self, InvalidInput> {
        self.forget_ms = Some(whole_millis("forget_after", unused)?);
        Ok(self)
    }

    /// The name of the resource's mark in Redis.
    #[must_use]
    pub fn mark_name(&self, resource: &Key) -> String {
        self.names.gate(resource)
    }

    fn call<'a>(
        &self,
        script: &'a FencedScript,
        resource: &'a Key,
        token: Token,
        keys: Vec<Vec<u8>>,
        args: Vec<Vec<u8>>,
    ) -> Call<'a> {
        Call {
            script,
            resource,
            token,
            mark: self.mark_name(resource),
            forget_ms: self.forget_ms,
            keys,
            args,
        }
    }
}

impl<C: ConnectionLike + Clone + Send + Sync + 'static> RedisGate<C> {
    /// Runs `script` if `token` is admitted at `resource`, in one atomic step
    /// with the check. `keys` and `args` are whatever the driver takes as
    /// arguments: one value, a slice, a tuple, `None::<&str>` for none.
    ///
    /// The token is remembered before the script runs and stays so when the
    /// script fails, as in [`LocalGate`](lease_core::LocalGate); Redis itself
    /// keeps what a script wrote before it failed. Nothing else runs in the
    /// server meanwhile, so keep it short.
    ///
    /// **When the outcome is unknown**, the script may have run: repeat it only
    /// if running it twice does no harm. A driver that repeats calls by itself
    /// (a cluster's connection, by its settings) may do so, too.
    ///
    /// # Errors
    /// [`ScriptError`]: only `Failed` and `Answer`, and `Store` with an unknown
    /// outcome, leave anything behind.
    ///
    /// # Cancel safety
    /// The script may or may not have run, and may yet run.
    pub async fn script<T: FromRedisValue>(
        &self,
        resource: &Key,
        token: Token,
        script: &FencedScript,
        keys: impl ToRedisArgs,
        args: impl ToRedisArgs,
    ) -> Result<T, ScriptError> {
        let (keys, args) = (keys.to_redis_args(), args.to_redis_args());
        let call = self.call(script, resource, token, keys, args);
        let value = call.run(&mut self.connection.clone()).await?;
        let kind = kind(&value);
        // Not the driver's words: they hold the value, which may be a secret.
        from_redis_value(value).map_err(|_| ScriptError::Answer {
            message: format!("{kind} is no {}", std::any::type_name::<T>()),
        })
    }
}

/// Apart from the write: see [`Gate`]. Prefer the fenced writes.
#[async_trait]
impl<C: ConnectionLike + Clone + Send + Sync + 'static> Gate for RedisGate<C> {
    async fn admit(&self, resource: &Key, token: Token) -> Result<(), AdmitError> {
        self.write(&writes::NOTHING, resource, token, Vec::new(), Vec::new())
            .await
            .map(drop)
    }
}

impl<C> fmt::Debug for RedisGate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisGate")
            .field("names", &self.names)
            .field("forget_ms", &self.forget_ms)
            .finish_non_exhaustive()
    }
}

fn kind(value: &Value) -> String {
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(_) => "an integer".to_owned(),
        Value::BulkString(bytes) => format!("a text of {} bytes", bytes.len()),
        Value::Array(items) => format!("an array of {} items", items.len()),
        Value::Okay | Value::SimpleString(_) => "a status".to_owned(),
        Value::Map(pairs) => format!("a map of {} pairs", pairs.len()),
        _ => "another kind of value".to_owned(),
    }
}

fn whole_millis(option: &'static str, duration: Duration) -> Result<u64, InvalidInput> {
    if duration.is_zero() {
        return Err(InvalidInput::ZeroDuration { option });
    }
    Ok(u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}
