//! Looks at a queue that change nothing.

use std::collections::VecDeque;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{Key, KeyState, StoreError};
use lease_postgres::parts::{Over, column, odd};
use lease_postgres::sqlx::postgres::PgRow;
use lease_postgres::sqlx::query;

use super::{PostgresQueues, row};
use crate::item::{ItemState, Phase};
use crate::name::QueueName;
use crate::store::Depth;

pub(super) const INSPECT: &str = include_str!("sql/inspect.sql");
pub(super) const KEYS: &str = include_str!("sql/keys.sql");
pub(super) const ITEMS: &str = include_str!("sql/items.sql");
pub(super) const DEPTH: &str = include_str!("sql/depth.sql");

const PAGE: i64 = 256;

/// What one page gave, and where the next one begins; none after the last one.
type Page<T, P> = Result<(Vec<T>, Option<P>), StoreError>;

impl PostgresQueues {
    pub(super) async fn state_of(
        &self,
        queue: &QueueName,
        key: &Key,
    ) -> Result<KeyState, StoreError> {
        let sql = &self.statements.inspect;
        let ask = || {
            query(sql.clone())
                .bind(queue.as_str().to_owned())
                .bind(key.as_str().to_owned())
        };
        let rows = self.client.rows(Over::Usual, true, key, ask).await?;
        row::state(key.clone(), rows.first().ok_or_else(odd)?)
    }

    pub(super) fn key_states(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>> {
        if prefix.contains('\0') {
            // No key has one, and Postgres takes no NUL at all.
            return stream::empty().boxed();
        }
        let (store, queue, prefix) = (self.clone(), queue.clone(), prefix.to_owned());
        let first = (prefix.clone(), true);
        pages(first, move |(from, including): (String, bool)| {
            let (store, queue, prefix) = (store.clone(), queue.clone(), prefix.clone());
            Box::pin(async move {
                let sql = &store.statements.keys;
                let ask = || {
                    query(sql.clone())
                        .bind(queue.as_str().to_owned())
                        .bind(from.clone())
                        .bind(including)
                        .bind(PAGE)
                };
                let rows = store.client.rows(Over::Usual, true, &queue, ask).await?;
                let mut states = Vec::with_capacity(rows.len());
                let mut next = None;
                for found in &rows {
                    let name: &str = column(found, "name")?;
                    if !name.starts_with(&prefix) {
                        return Ok((states, None));
                    }
                    next = Some((name.to_owned(), false));
                    keep(
                        &mut states,
                        row::key(name).and_then(|key| row::state(key, found)),
                    );
                }
                Ok((states, next.filter(|_| is_full(&rows))))
            })
        })
    }

    pub(super) fn item_states(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        let (store, queue) = (self.clone(), queue.clone());
        pages(i64::MIN, move |after: i64| {
            let (store, queue) = (store.clone(), queue.clone());
            Box::pin(async move {
                let sql = &store.statements.items;
                let ask = || {
                    query(sql.clone())
                        .bind(queue.as_str().to_owned())
                        .bind(i16::from(dead))
                        .bind(after)
                        .bind(PAGE)
                };
                let rows = store.client.rows(Over::Usual, true, &queue, ask).await?;
                let mut states = Vec::with_capacity(rows.len());
                let mut next = None;
                for found in &rows {
                    next = Some(column(found, "seq")?);
                    keep(&mut states, item(found));
                }
                Ok((states, next.filter(|_| is_full(&rows))))
            })
        })
    }

    pub(super) async fn depth_of(&self, queue: &QueueName) -> Result<Depth, StoreError> {
        let sql = &self.statements.depth;
        let ask = || query(sql.clone()).bind(queue.as_str().to_owned());
        let rows = self.client.rows(Over::Usual, true, queue, ask).await?;
        let row = rows.first().ok_or_else(odd)?;
        let count = |name| column::<i64>(row, name).map(|n| u64::try_from(n).unwrap_or(0));
        let (delayed, in_flight) = (count("delayed")?, count("claimed")?);
        Ok(Depth {
            ready: count("living")?.saturating_sub(delayed + in_flight),
            delayed,
            in_flight,
            dead: count("dead")?,
            oldest: column::<Option<i64>>(row, "oldest")?.map(row::micros),
        })
    }
}

fn is_full(rows: &[PgRow]) -> bool {
    i64::try_from(rows.len()).unwrap_or(PAGE) >= PAGE
}

/// Something foreign in one row hides no other one.
fn keep<T>(all: &mut Vec<T>, one: Result<T, StoreError>) {
    match one {
        Ok(one) => all.push(one),
        Err(error) => {
            tracing::warn!(target: lease_core::UNREADABLE, %error, "skipped in a list");
        }
    }
}

fn item(row: &PgRow) -> Result<ItemState, StoreError> {
    let attempts: i32 = column(row, "attempts")?;
    let bytes: i32 = column(row, "bytes")?;
    let delay: i64 = column(row, "delay")?;
    let group: Option<&str> = column(row, "grp")?;
    let dedup: Option<&str> = column(row, "dedup")?;
    let phase = match column::<i16>(row, "state")? {
        1 => Phase::Dead(column::<Option<String>>(row, "reason")?.unwrap_or_default()),
        _ if column(row, "claimed")? => Phase::Claimed(row::holder(row, "held")?),
        _ if delay > 0 => Phase::Delayed(row::micros(delay)),
        _ => Phase::Ready,
    };
    Ok(ItemState {
        id: row::item(column(row, "id")?)?,
        group: group.map(row::key).transpose()?,
        dedup: dedup.map(row::key).transpose()?,
        attempts: u32::try_from(attempts).map_err(|_| row::foreign("attempts below zero"))?,
        age: row::micros(column(row, "age")?),
        bytes: usize::try_from(bytes).unwrap_or(0),
        phase,
        last_error: column(row, "last_error")?,
    })
}

/// Page by page; an error is the last that comes.
fn pages<T, P>(
    first: P,
    page: impl Fn(P) -> BoxFuture<'static, Page<T, P>> + Send + 'static,
) -> BoxStream<'static, Result<T, StoreError>>
where
    T: Send + 'static,
    P: Send + 'static,
{
    let begin = (page, Some(first), VecDeque::new());
    stream::unfold(begin, |(page, mut from, mut ready)| async move {
        loop {
            if let Some(one) = ready.pop_front() {
                return Some((one, (page, from, ready)));
            }
            match page(from.take()?).await {
                Ok((found, next)) => {
                    ready.extend(found.into_iter().map(Ok));
                    from = next;
                }
                Err(error) => ready.push_back(Err(error)),
            }
        }
    })
    .boxed()
}
