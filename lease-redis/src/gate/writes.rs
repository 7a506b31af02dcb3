//! The usual writes, fenced.

use std::sync::LazyLock;
use std::time::Duration;

use lease_core::{AdmitError, Key, StoreError, StoreErrorKind, Token};
use redis::aio::ConnectionLike;
use redis::{ToRedisArgs, Value, from_redis_value};

use super::error::ScriptError;
use super::script::FencedScript;
use super::{RedisGate, whole_millis};
use crate::errors::caught;

/// Only the check.
pub(super) static NOTHING: LazyLock<FencedScript> = LazyLock::new(|| FencedScript::new(""));

static SET: LazyLock<FencedScript> =
    LazyLock::new(|| FencedScript::new("return redis.call('SET', KEYS[1], unpack(ARGV))"));

/// Lua hands over no more than some thousands of arguments at once. Only the
/// first part can fail: later ones meet the same type, and the limit of memory
/// is not looked at again within a script that has written.
static HSET: LazyLock<FencedScript> = LazyLock::new(|| {
    FencedScript::new(
        "local new = 0
         for i = 1, #ARGV, 1000 do
           new = new + redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
         end
         return new",
    )
});

static DEL: LazyLock<FencedScript> = LazyLock::new(|| {
    FencedScript::new(
        "local gone = 0
         for _, key in ipairs(KEYS) do gone = gone + redis.call('DEL', key) end
         return gone",
    )
});

/// Each write is atomic with the check of its token. Where one fails with
/// anything but an unknown outcome, nothing was written.
///
/// **When the outcome is unknown**, the same write may be repeated with the
/// same token: it changes nothing more, and if another holder has written
/// since, it is refused. One trap is left: the lost request may still arrive
/// after *later* writes of the same holder, whose token is equal.
///
/// Keys, fields and values are whatever the driver takes as arguments. A key
/// or value that makes none or several arguments is `InvalidInput`.
impl<C: ConnectionLike + Clone + Send + Sync + 'static> RedisGate<C> {
    /// `SET key value`, if `token` is admitted at `resource`. As with any
    /// `SET`, a value of another type is replaced, and an expiry removed.
    ///
    /// # Errors
    /// [`AdmitError::Stale`] names both tokens; nothing was written.
    /// [`AdmitError::Store`] as the driver and the server fail.
    ///
    /// # Cancel safety
    /// The write may or may not have happened, and may yet happen.
    pub async fn set(
        &self,
        resource: &Key,
        token: Token,
        key: impl ToRedisArgs,
        value: impl ToRedisArgs,
    ) -> Result<(), AdmitError> {
        let (keys, args) = (one("key", &key)?, one("value", &value)?);
        self.write(&SET, resource, token, keys, args).await?;
        Ok(())
    }

    /// As [`set`](Self::set), and the key expires after `lifetime`, in
    /// milliseconds, rounded up.
    ///
    /// # Errors
    /// As [`set`](Self::set); `InvalidInput` for a lifetime of zero.
    ///
    /// # Cancel safety
    /// As [`set`](Self::set).
    pub async fn set_expiring(
        &self,
        resource: &Key,
        token: Token,
        key: impl ToRedisArgs,
        value: impl ToRedisArgs,
        lifetime: Duration,
    ) -> Result<(), AdmitError> {
        let ms = whole_millis("lifetime", lifetime).map_err(StoreError::from)?;
        let (keys, mut args) = (one("key", &key)?, one("value", &value)?);
        args.extend(("PX", ms).to_redis_args());
        self.write(&SET, resource, token, keys, args).await?;
        Ok(())
    }

    /// `HSET key field value …`, if `token` is admitted at `resource`: one pair
    /// `("field", value)`, or a slice or a map of pairs. Says how many fields
    /// are new.
    ///
    /// # Errors
    /// As [`set`](Self::set). `Refusing` when the key holds no hash;
    /// `InvalidInput` when there is no field, or one without a value.
    ///
    /// # Cancel safety
    /// As [`set`](Self::set).
    pub async fn hset(
        &self,
        resource: &Key,
        token: Token,
        key: impl ToRedisArgs,
        fields: impl ToRedisArgs,
    ) -> Result<u64, AdmitError> {
        let (keys, args) = (one("key", &key)?, fields.to_redis_args());
        if args.is_empty() || args.len() % 2 != 0 {
            return Err(invalid(
                "a fenced HSET needs pairs of a field and a value, and at least one",
            )
            .into());
        }
        let new = self.write(&HSET, resource, token, keys, args).await?;
        count(new)
    }

    /// `DEL key …`, if `token` is admitted at `resource`. Says how many keys
    /// there were.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    ///
    /// # Cancel safety
    /// As [`set`](Self::set).
    pub async fn del(
        &self,
        resource: &Key,
        token: Token,
        keys: impl ToRedisArgs,
    ) -> Result<u64, AdmitError> {
        let keys = keys.to_redis_args();
        let gone = self.write(&DEL, resource, token, keys, Vec::new()).await?;
        count(gone)
    }

    pub(super) async fn write(
        &self,
        script: &FencedScript,
        resource: &Key,
        token: Token,
        keys: Vec<Vec<u8>>,
        args: Vec<Vec<u8>>,
    ) -> Result<Value, AdmitError> {
        let call = self.call(script, resource, token, keys, args);
        let failed = match call.run(&mut self.connection.clone()).await {
            Ok(value) => return Ok(value),
            Err(ScriptError::Stale(stale)) => return Err(stale.into()),
            Err(ScriptError::Store(store)) => return Err(store.into()),
            Err(ScriptError::Failed { message } | ScriptError::Answer { message }) => message,
        };
        let doing = format!("writing for {:?}", resource.as_str());
        if failed.starts_with("WRONGTYPE") {
            return Err(StoreError::refusing(format!(
                "{doing}: a value of another type stands at the key and was left as it is; remove \
                 it or use another key"
            ))
            .into());
        }
        Err(caught(&doing, &failed).into())
    }
}

fn one(what: &str, value: &impl ToRedisArgs) -> Result<Vec<Vec<u8>>, StoreError> {
    let args = value.to_redis_args();
    if args.len() != 1 {
        let n = args.len();
        return Err(invalid(&format!(
            "the {what} of a fenced write is one argument, not {n}"
        )));
    }
    Ok(args)
}

fn invalid(message: &str) -> StoreError {
    StoreError::new(StoreErrorKind::InvalidInput, message)
}

fn count(value: Value) -> Result<u64, AdmitError> {
    from_redis_value(value).map_err(|_| {
        StoreError::unknown_outcome("the server counted with what is no number; the write happened")
            .into()
    })
}
