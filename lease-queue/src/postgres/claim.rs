//! Claiming: of whatever is ready, and of a key.

use std::time::Duration;

use bytes::Bytes;
use lease_core::{
    Holder, Key, Owner, RefusedReason, StoreError, TakenOver, Token, TokenRule, place_lasts,
};
use lease_postgres::parts::{Again, Over, column, odd};
use lease_postgres::sqlx::postgres::PgRow;
use lease_postgres::sqlx::query;

use super::{PostgresQueues, delay_us, number, row};
use crate::item::{ClaimRef, Claimed, ItemId};
use crate::name::{Lane, QueueName};
use crate::store::{Answer, ClaimRequest};

pub(super) const NEXT: &str = "SELECT * FROM {queue_claim}($1, $2, $3, $4, $5, $6)";
pub(super) const KEY: &str = "SELECT * FROM {queue_key}($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// How often what is ready and locked is looked at once more: whoever holds it locked
/// is claiming or settling it, as a rule.
const LOOKS: u32 = 6;
/// When it is looked at again, where somebody's transaction keeps it.
const KEPT: Duration = Duration::from_millis(100);

/// The number of the lock that keeps one owner's requests apart.
pub(super) fn lock(owner: Owner) -> i64 {
    let (mut first, bytes) = ([0; 8], owner.as_bytes());
    first.copy_from_slice(&bytes[..8]);
    i64::from_be_bytes(first)
}

impl PostgresQueues {
    pub(super) async fn next(
        &self,
        queue: &QueueName,
        request: &ClaimRequest,
        max: usize,
    ) -> Result<Answer, StoreError> {
        let mut again = Again::new(self.client.response_timeout());
        for look in 1.. {
            match self.gathered_claim(queue, request, max).await? {
                Looked::Answer(answer) => return Ok(answer),
                Looked::Locked { .. } if look < LOOKS => again.pause(queue).await?,
                Looked::Locked { next } => {
                    let next = next.map_or(KEPT, |next| next.min(KEPT));
                    return Ok(Answer::Nothing { next: Some(next) });
                }
            }
        }
        Err(odd())
    }

    /// One look for each, in the order of the requests.
    pub(super) async fn look_for_all(
        &self,
        queue: &QueueName,
        requests: &[(&ClaimRequest, usize)],
    ) -> Result<Vec<Result<Looked, StoreError>>, StoreError> {
        let mut all: Vec<_> = requests.iter().enumerate().collect();
        // In this order everywhere, so that no two wait for each other.
        all.sort_by_key(|(_, (request, _))| lock(request.owner));
        let sql = &self.statements.next;
        let ask = || {
            let all = all.iter().map(|(_, one)| *one);
            let owner = |one: &(&ClaimRequest, usize)| one.0.owner;
            let owners = all.clone().map(|one| owner(one).as_bytes().to_vec());
            let locks = all.clone().map(|one| lock(owner(one)));
            let ttls = all.clone().map(|one| number(one.0.ttl.as_micros()));
            let labels = all.clone().map(|one| one.0.label.as_str().to_owned());
            let most = all.map(|one| i32::try_from(one.1).unwrap_or(i32::MAX));
            query(sql.clone())
                .bind(queue.as_str().to_owned())
                .bind(owners.collect::<Vec<_>>())
                .bind(locks.collect::<Vec<_>>())
                .bind(ttls.collect::<Vec<_>>())
                .bind(labels.collect::<Vec<_>>())
                .bind(most.collect::<Vec<_>>())
        };
        let rows = self.client.rows(Over::Usual, false, queue, ask).await?;
        let mut of_each: Vec<Vec<&PgRow>> = all.iter().map(|_| Vec::new()).collect();
        for row in &rows {
            let n: i32 = column(row, "o_n")?;
            let place = usize::try_from(n - 1).map_err(|_| odd())?;
            of_each.get_mut(place).ok_or_else(odd)?.push(row);
        }
        let told = all.iter().zip(of_each);
        let told = told.map(|((place, one), rows)| (*place, looked(&rows, one.0.owner)));
        let mut told: Vec<_> = told.collect();
        told.sort_by_key(|(place, _)| *place);
        Ok(told.into_iter().map(|(_, one)| one).collect())
    }

    pub(super) async fn key(
        &self,
        queue: &QueueName,
        request: &ClaimRequest,
        key: &Key,
        (rule, waits): (TokenRule, Option<Duration>),
    ) -> Result<Answer, StoreError> {
        let lasts = waits.map_or(0, |waits| delay_us(place_lasts(waits)));
        // No token is 0.
        let (exactly, after) = match rule {
            TokenRule::Next { after } => (0, after.map_or(0, Token::get)),
            TokenRule::Exactly(token) => (token.get(), 0),
        };
        let sql = &self.statements.key;
        let ask = || {
            query(sql.clone())
                .bind(queue.as_str().to_owned())
                .bind(key.as_str().to_owned())
                .bind(request.owner.as_bytes().to_vec())
                .bind(lock(request.owner))
                .bind(number(request.ttl.as_micros()))
                .bind(request.label.as_str().to_owned())
                .bind(number(exactly))
                .bind(number(after))
                .bind(lasts)
        };
        let mut again = Again::new(self.client.response_timeout());
        loop {
            let asked = self.client.ask(Over::Usual, true, key, ask).await?;
            let first = asked.rows.first().ok_or_else(odd)?;
            match (column(first, "o_code")?, asked.doubt) {
                (1, doubt) => return granted(first, key, request.owner, doubt.is_some()),
                // The earlier copy could grant it to an owner who was told otherwise.
                (_, Some(doubt)) => return Err(doubt),
                (9, _) => again.pause(key).await?,
                (0, _) => return held(first).map(Answer::Held),
                (10, _) => return in_line(first),
                (8, _) => return Err(row::foreign(row::IN_PART)),
                (code, _) => return Ok(Answer::Refused(refused(code, column(first, "o_mark")?)?)),
            }
        }
    }
}

/// What one look for whatever is ready came to.
pub(crate) enum Looked {
    Answer(Answer),
    /// Something is ready, and somebody else holds it locked.
    Locked {
        next: Option<Duration>,
    },
}

fn looked(rows: &[&PgRow], owner: Owner) -> Result<Looked, StoreError> {
    let first = rows.first().ok_or_else(odd)?;
    let next = column::<Option<i64>>(first, "o_next")?.map(row::micros);
    Ok(match column(first, "o_code")? {
        1 => {
            let items = rows.iter().map(|row| claimed(row, owner));
            let items: Result<_, StoreError> = items.collect();
            Looked::Answer(Answer::Claimed {
                // They are claimed; whoever asked abandons them.
                items: items.map_err(|error| {
                    StoreError::unknown_outcome(format!("claimed, but: {error}"))
                })?,
                taken_over: None,
                repeated: false,
            })
        }
        9 => Looked::Locked { next },
        0 => Looked::Answer(Answer::Nothing { next }),
        8 => return Err(row::foreign(row::IN_PART)),
        code => Looked::Answer(Answer::Refused(refused(code, None)?)),
    })
}

fn claimed(row: &PgRow, owner: Owner) -> Result<Claimed, StoreError> {
    let item = row::item(column(row, "o_item")?)?;
    let attempt: i32 = column(row, "o_attempt")?;
    Ok(Claimed {
        claim: ClaimRef {
            item,
            lane: row::claimed_lane(column(row, "o_kind")?, column(row, "o_name")?, item)?,
            owner,
            token: row::token(column(row, "o_token")?)?,
        },
        body: Bytes::from(column::<Vec<u8>>(row, "o_body")?),
        attempt: u32::try_from(attempt).map_err(|_| row::foreign("attempts below zero"))?,
        age: row::micros(column(row, "o_age")?),
    })
}

fn in_line(row: &PgRow) -> Result<Answer, StoreError> {
    let number = |name| row::there(column::<Option<i64>>(row, name)?, name);
    Ok(Answer::Refused(RefusedReason::InLine {
        ahead: u64::try_from(number("o_ahead")?).map_err(|_| odd())?,
        remaining: row::micros(number("o_remaining")?),
    }))
}

fn held(row: &PgRow) -> Result<Holder, StoreError> {
    let number = |name| row::there(column::<Option<i64>>(row, name)?, name);
    let label = row::there(column::<Option<&str>>(row, "o_label")?, "label")?;
    Ok(Holder {
        label: row::label(label)?,
        token: row::token(number("o_token")?)?,
        age: row::micros(number("o_age")?),
        remaining: row::micros(number("o_remaining")?),
    })
}

fn granted(row: &PgRow, key: &Key, owner: Owner, repeated: bool) -> Result<Answer, StoreError> {
    let claimed = Claimed {
        claim: ClaimRef {
            item: ItemId::TOKEN,
            lane: Lane::Key(key.clone()),
            owner,
            token: row::token(column(row, "o_token")?)?,
        },
        body: Bytes::new(),
        attempt: 1,
        age: Duration::ZERO,
    };
    Ok(Answer::Claimed {
        items: vec![claimed],
        taken_over: former(row),
        repeated,
    })
}

/// Whose expired claim was in the way, if that can be read: the claim that was made over
/// it stands, whatever that one was.
fn former(row: &PgRow) -> Option<TakenOver> {
    let former: i64 = column::<Option<i64>>(row, "o_over").ok().flatten()?;
    let label: &str = column::<Option<&str>>(row, "o_label").ok().flatten()?;
    Some(TakenOver {
        label: row::label(label).ok()?,
        token: row::token(former).ok()?,
    })
}

fn refused(code: i32, mark: Option<i64>) -> Result<RefusedReason, StoreError> {
    Ok(match (code, mark) {
        (2, Some(mark)) => RefusedReason::BelowMark {
            high_water: row::token(mark)?,
        },
        (3, _) => RefusedReason::Abandoned,
        (4, _) => RefusedReason::Revoked,
        (6, _) => RefusedReason::TokensExhausted,
        _ => return Err(odd()),
    })
}
