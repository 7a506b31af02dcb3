//! One key as its row keeps it, checked on the way in: the file may hold what
//! this store did not write.

use std::time::Duration;

use lease_core::{Holder, Key, KeyState, Label, Owner, StoreError, Token};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::sql::CLOCK_STEP_US;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Granted,
    Released,
    /// Revoked; in the way until its expiry.
    Revoked,
}

impl Standing {
    pub(crate) const fn code(self) -> i64 {
        match self {
            Self::Granted => 0,
            Self::Released => 1,
            Self::Revoked => 2,
        }
    }

    const fn from_code(code: i64) -> Option<Self> {
        match code {
            0 => Some(Self::Granted),
            1 => Some(Self::Released),
            2 => Some(Self::Revoked),
            _ => None,
        }
    }
}

/// The last grant of a key. Times are microseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) owner: Owner,
    pub(crate) token: Token,
    pub(crate) label: Label,
    pub(crate) granted_us: i64,
    pub(crate) expires_us: i64,
    pub(crate) standing: Standing,
}

impl Grant {
    /// The clock shows whole milliseconds and was read rounded down when the
    /// grant was made, so the grant also covers the millisecond at whose start
    /// it expires: it is never shorter than its TTL.
    fn in_time(&self, now_us: i64) -> bool {
        now_us <= self.expires_us
    }

    pub(crate) fn is_live(&self, now_us: i64) -> bool {
        self.standing == Standing::Granted && self.in_time(now_us)
    }

    pub(crate) fn blocks(&self, now_us: i64) -> bool {
        self.standing != Standing::Released && self.in_time(now_us)
    }

    /// Ends the grant's time, whatever was left of it.
    pub(crate) fn end_time(&mut self, now_us: i64) {
        self.expires_us = self.expires_us.min(now_us.saturating_sub(CLOCK_STEP_US));
    }

    fn remaining(&self, now_us: i64) -> Duration {
        micros(self.expires_us.saturating_sub(now_us).max(CLOCK_STEP_US))
    }

    pub(crate) fn holder(&self, now_us: i64) -> Holder {
        Holder {
            label: self.label.clone(),
            token: self.token,
            age: micros(now_us.saturating_sub(self.granted_us)),
            remaining: self.remaining(now_us),
        }
    }
}

fn micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

/// A key that was granted or fenced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRow {
    pub(crate) mark: Token,
    pub(crate) grant: Option<Grant>,
}

impl KeyRow {
    pub(crate) fn state(&self, key: &Key, now_us: i64) -> KeyState {
        let grant = self.grant.as_ref();
        KeyState {
            key: key.clone(),
            high_water: Some(self.mark),
            holder: grant
                .filter(|g| g.is_live(now_us))
                .map(|g| g.holder(now_us)),
            blocked_for: grant
                .filter(|g| !g.is_live(now_us) && g.blocks(now_us))
                .map(|g| g.remaining(now_us)),
        }
    }

    /// Reads the row of `key`, whose columns have the table's own names.
    pub(crate) fn read(key: &str, row: &SqliteRow) -> Result<Self, StoreError> {
        Self::parse(row).map_err(|what| {
            StoreError::refusing(format!(
                "the row of {key:?} in the table lease_keys holds what this store does not \
                 write: {what}; it was left as it is, repair or delete it"
            ))
        })
    }

    fn parse(row: &SqliteRow) -> Result<Self, String> {
        let mark = token("mark", integer(row, "mark")?.ok_or("mark is NULL")?)?;
        let owner = row
            .try_get::<Option<Vec<u8>>, _>("owner")
            .map_err(|e| e.to_string())?;
        let label = row
            .try_get::<Option<String>, _>("label")
            .map_err(|e| e.to_string())?;
        let numbers = (
            integer(row, "token")?,
            integer(row, "granted_us")?,
            integer(row, "expires_us")?,
            integer(row, "standing")?,
        );
        let grant = match (owner, label, numbers) {
            (None, None, (None, None, None, None)) => None,
            (
                Some(owner),
                Some(label),
                (Some(number), Some(granted_us), Some(expires_us), Some(standing)),
            ) => Some(Grant {
                owner: self::owner(owner)?,
                token: token("token", number)?,
                label: Label::new(label).map_err(|e| e.to_string())?,
                granted_us,
                expires_us,
                standing: Standing::from_code(standing)
                    .ok_or_else(|| format!("standing is {standing}"))?,
            }),
            _ => return Err("a part of its grant is NULL".to_owned()),
        };
        match &grant {
            Some(grant) if grant.token > mark => Err(format!(
                "its token {} is above its mark {mark}",
                grant.token
            )),
            _ => Ok(Self { mark, grant }),
        }
    }
}

fn integer(row: &SqliteRow, column: &str) -> Result<Option<i64>, String> {
    row.try_get(column).map_err(|e| e.to_string())
}

pub(crate) fn token(column: &str, number: i64) -> Result<Token, String> {
    u64::try_from(number)
        .ok()
        .and_then(|number| Token::new(number).ok())
        .ok_or_else(|| format!("{column} is {number}, which is no fencing token"))
}

pub(crate) fn owner(bytes: Vec<u8>) -> Result<Owner, String> {
    let length = bytes.len();
    <[u8; 16]>::try_from(bytes)
        .map(Owner::from_bytes)
        .map_err(|_| format!("owner has {length} bytes, not 16"))
}
