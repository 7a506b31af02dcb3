//! What a statement answers, checked on the way in: the tables may hold what
//! this store did not write.

use std::collections::HashMap;
use std::time::Duration;

use lease_core::{
    AcquireOutcome, Granted, Holder, Key, KeyState, Label, LostCause, RefusedReason,
    ReleaseOutcome, RenewOutcome, StaleToken, StoreError, TakenOver, Token,
};
use sqlx::error::UnexpectedNullError;
use sqlx::postgres::PgRow;
use sqlx::{Error, Row as _};

use crate::errors::odd;
use crate::request::{Kind, Request};

/// The answer to one operation.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Acquired(AcquireOutcome),
    /// By a grant that belongs to a session.
    Held(Holder, i64),
    Suspected {
        /// The session is gone.
        gone: bool,
        /// What that left of the grant's time, if it was shortened.
        remaining: Option<Duration>,
    },
    Renewed(RenewOutcome),
    Released(ReleaseOutcome),
    Abandoned,
    Fenced(Token),
    State(KeyState),
    Admitted(Result<(), StaleToken>),
}

/// The answers to a batch, in its order.
#[derive(Debug)]
pub(crate) struct Replies {
    /// None for a request that found its row locked or changed: it had no
    /// effect and is to be asked again.
    pub(crate) answers: Vec<Option<Result<Reply, StoreError>>>,
    /// Keys that became free and that somebody waits for.
    pub(crate) freed: Vec<String>,
}

impl Replies {
    pub(crate) fn read(requests: &[Request], rows: &[PgRow]) -> Result<Self, StoreError> {
        let kind = requests.first().map(Request::kind).ok_or_else(odd)?;
        let mut replies = Self {
            answers: requests.iter().map(|_| None).collect(),
            freed: Vec::new(),
        };
        let mut places = None;
        for row in rows {
            let place = match get::<Option<i64>>(row, "n")? {
                Some(n) => usize::try_from(n - 1).map_err(|_| odd())?,
                // A new row of the table, which knows no more than its key.
                None => {
                    let places = places.get_or_insert_with(|| by_key(requests));
                    *places.get(get::<&str>(row, "key")?).ok_or_else(odd)?
                }
            };
            let request = requests.get(place).ok_or_else(odd)?;
            let answer = replies.answers.get_mut(place).ok_or_else(odd)?;
            *answer = Some(reply(kind, request, row));
            if matches!(kind, Kind::Abandon | Kind::Fence) && get::<bool>(row, "awaited")? {
                replies.freed.push(request.key.to_string());
            }
        }
        Ok(replies)
    }

    /// The answers to acquires of which an earlier copy may still be under way:
    /// `unknown` says so. It could grant the key later to an owner who was told that
    /// somebody else holds it.
    pub(crate) fn of_copies(mut self, unknown: &StoreError) -> Self {
        for answer in &mut self.answers {
            match answer {
                Some(Ok(Reply::Acquired(AcquireOutcome::Granted(granted)))) => {
                    granted.repeated = true;
                }
                _ => *answer = Some(Err(unknown.clone())),
            }
        }
        self
    }
}

fn by_key(requests: &[Request]) -> HashMap<&str, usize> {
    let keys = requests.iter().map(|request| request.key.as_str());
    keys.zip(0..).collect()
}

fn reply(kind: Kind, request: &Request, row: &PgRow) -> Result<Reply, StoreError> {
    let code: i32 = get(row, "code")?;
    Ok(match kind {
        Kind::Acquire => match (acquired(code, row)?, get(row, "session")?) {
            (AcquireOutcome::Held(holder), Some(session)) => Reply::Held(holder, session),
            (outcome, _) => Reply::Acquired(outcome),
        },
        Kind::Suspect => Reply::Suspected {
            gone: code == 1,
            remaining: get::<Option<i64>>(row, "remaining")?.map(micros),
        },
        Kind::Renew | Kind::Prolong => Reply::Renewed(renewed(code)?),
        Kind::Release => Reply::Released(match code {
            1 => ReleaseOutcome::Released,
            0 => ReleaseOutcome::NotHeld,
            _ => return Err(odd()),
        }),
        Kind::Abandon => Reply::Abandoned,
        Kind::Fence => Reply::Fenced(written(get(row, "mark").and_then(token))?),
        Kind::Inspect => Reply::State(state(request.key.clone(), row)?),
        Kind::Admit => Reply::Admitted(match (code, request.presented()) {
            (1, _) => Ok(()),
            (0, Some(presented)) => Err(StaleToken {
                resource: request.key.clone(),
                presented,
                admitted: token(get(row, "token")?)?,
            }),
            _ => return Err(odd()),
        }),
    })
}

/// Of an answer that says what was done: what cannot be read of it took effect.
fn written<T>(read: Result<T, StoreError>) -> Result<T, StoreError> {
    read.map_err(|error| {
        StoreError::unknown_outcome(format!("the answer to a change cannot be read: {error}"))
    })
}

fn acquired(code: i32, row: &PgRow) -> Result<AcquireOutcome, StoreError> {
    Ok(match code {
        0 => AcquireOutcome::Held(holder(row)?),
        1 => AcquireOutcome::Granted(Granted {
            token: written(get(row, "token").and_then(token))?,
            taken_over: former(row),
            repeated: false,
        }),
        2 => AcquireOutcome::Refused(RefusedReason::BelowMark {
            high_water: token(get(row, "mark")?)?,
        }),
        3 => AcquireOutcome::Refused(RefusedReason::Abandoned),
        4 => AcquireOutcome::Refused(RefusedReason::Revoked),
        6 => AcquireOutcome::Refused(RefusedReason::TokensExhausted),
        8 => {
            return Err(foreign(IN_PART));
        }
        _ => return Err(odd()),
    })
}

/// Whose expired grant was in the way, if that can be read: the grant that was made
/// over it stands, whatever that one was.
fn former(row: &PgRow) -> Option<TakenOver> {
    let former: i64 = get::<Option<i64>>(row, "over").ok().flatten()?;
    Some(TakenOver {
        label: label(row).ok()?,
        token: token(former).ok()?,
    })
}

fn renewed(code: i32) -> Result<RenewOutcome, StoreError> {
    Ok(match code {
        1 => RenewOutcome::Renewed,
        2 => RenewOutcome::Lost(LostCause::Expired),
        3 => RenewOutcome::Lost(LostCause::TakenOver),
        4 => RenewOutcome::Lost(LostCause::Released),
        5 => RenewOutcome::Lost(LostCause::Revoked),
        6 => RenewOutcome::Lost(LostCause::Unknown),
        8 => return Err(foreign(IN_PART)),
        _ => return Err(odd()),
    })
}

/// A key's state, from a row that has the table's columns or none of them.
pub(crate) fn state(key: Key, row: &PgRow) -> Result<KeyState, StoreError> {
    let mut state = KeyState {
        key,
        high_water: None,
        holder: None,
        blocked_for: None,
    };
    if get(row, "strange")? {
        return Err(foreign(IN_PART));
    }
    match get::<Option<i64>>(row, "mark")? {
        // Nobody was granted it yet; somebody waits, or has given up.
        None | Some(0) => return Ok(state),
        Some(mark) => state.high_water = Some(token(mark)?),
    }
    let expires: Option<i64> = get(row, "expires_us")?;
    if expires < Some(get(row, "now")?) {
        return Ok(state);
    }
    match get::<Option<i16>>(row, "standing")? {
        Some(0) => state.holder = Some(holder(row)?),
        Some(2) => state.blocked_for = Some(span(row, "now", "expires_us")?),
        _ => {}
    }
    Ok(state)
}

/// The holder whose grant has expired and was not ended otherwise.
pub(crate) fn kept(row: &PgRow) -> Result<Option<Holder>, StoreError> {
    let granted = get::<Option<i16>>(row, "standing")? == Some(0);
    match granted && get::<i64>(row, "expires_us")? < get::<i64>(row, "now")? {
        true => holder(row).map(Some),
        false => Ok(None),
    }
}

fn holder(row: &PgRow) -> Result<Holder, StoreError> {
    Ok(Holder {
        label: label(row)?,
        token: token(get(row, "token")?)?,
        age: span(row, "granted_us", "now")?,
        remaining: span(row, "now", "expires_us")?,
    })
}

fn label(row: &PgRow) -> Result<Label, StoreError> {
    Label::new(get::<&str>(row, "label")?).map_err(|error| foreign(&error.to_string()))
}

/// From one time to another. What the clock stepped back over is no time.
fn span(row: &PgRow, from: &str, to: &str) -> Result<Duration, StoreError> {
    let (from, to): (i64, i64) = (get(row, from)?, get(row, to)?);
    Ok(micros(to.saturating_sub(from)))
}

fn micros(us: i64) -> Duration {
    Duration::from_micros(u64::try_from(us).unwrap_or(0))
}

fn token(number: i64) -> Result<Token, StoreError> {
    u64::try_from(number)
        .ok()
        .and_then(|number| Token::new(number).ok())
        .ok_or_else(|| foreign(&format!("{number} is no fencing token")))
}

const IN_PART: &str = "part of a grant, or one of an unknown kind, that may still be live";

fn foreign(what: &str) -> StoreError {
    StoreError::refusing(format!(
        "a row of the store's tables holds what this store does not write: {what}; it was left as \
         it is, repair or delete it"
    ))
}

fn get<'r, T>(row: &'r PgRow, column: &str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    let unread = |what: Option<String>| what.map_or_else(odd, |what| foreign(&what));
    read(row, column).map_err(unread)
}

/// A column; or what is there that the store does not write, if the answer is one of ours.
pub(crate) fn read<'r, T>(row: &'r PgRow, column: &str) -> Result<T, Option<String>>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    row.try_get(column).map_err(|error| match error {
        Error::ColumnDecode { source, .. } if source.is::<UnexpectedNullError>() => {
            Some(format!("no {column}"))
        }
        // Of a table that somebody altered.
        Error::ColumnDecode { source, .. } => Some(format!("a {column} of {source}")),
        _ => None,
    })
}

impl Reply {
    pub(crate) fn acquired(self) -> Result<AcquireOutcome, StoreError> {
        match self {
            Self::Acquired(outcome) => Ok(outcome),
            Self::Held(holder, _) => Ok(AcquireOutcome::Held(holder)),
            _ => Err(odd()),
        }
    }

    pub(crate) fn renewed(self) -> Result<RenewOutcome, StoreError> {
        match self {
            Self::Renewed(outcome) => Ok(outcome),
            _ => Err(odd()),
        }
    }

    pub(crate) fn released(self) -> Result<ReleaseOutcome, StoreError> {
        match self {
            Self::Released(outcome) => Ok(outcome),
            _ => Err(odd()),
        }
    }

    pub(crate) fn abandoned(self) -> Result<(), StoreError> {
        match self {
            Self::Abandoned => Ok(()),
            _ => Err(odd()),
        }
    }

    pub(crate) fn fenced(self) -> Result<Token, StoreError> {
        match self {
            Self::Fenced(mark) => Ok(mark),
            _ => Err(odd()),
        }
    }

    pub(crate) fn state(self) -> Result<KeyState, StoreError> {
        match self {
            Self::State(state) => Ok(state),
            _ => Err(odd()),
        }
    }

    pub(crate) fn admitted(self) -> Result<Result<(), StaleToken>, StoreError> {
        match self {
            Self::Admitted(outcome) => Ok(outcome),
            _ => Err(odd()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_grant_is_told_after_a_copy_that_may_be_under_way() {
        let granted = AcquireOutcome::Granted(Granted::new(Token::MIN));
        let abandoned = AcquireOutcome::Refused(RefusedReason::Abandoned);
        let answers = [Some(granted), Some(abandoned), None];
        let replies = Replies {
            answers: answers
                .map(|one| one.map(|one| Ok(Reply::Acquired(one))))
                .into(),
            freed: Vec::new(),
        };
        let unknown = StoreError::unknown_outcome("cut off");
        let mut told = replies.of_copies(&unknown).answers.into_iter().flatten();
        assert!(matches!(
            told.next(),
            Some(Ok(Reply::Acquired(AcquireOutcome::Granted(granted)))) if granted.repeated
        ));
        for other in told {
            assert!(other.unwrap_err().is_unknown_outcome());
        }
    }
}
