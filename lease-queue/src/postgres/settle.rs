//! What becomes of claims: many in one statement, each with an outcome of its own.

use futures_util::future::BoxFuture;
use lease_core::{LostCause, StoreError, StoreErrorKind};
use lease_postgres::parts::{Again, Over, column, odd};
use lease_postgres::sqlx::postgres::PgRow;
use lease_postgres::sqlx::query;

use super::{PostgresQueues, delay_us, number, row, shown};
use crate::check::check_settle;
use crate::item::ClaimRef;
use crate::name::QueueName;
use crate::store::{MAX_BATCH, Settle, Settled};

pub(super) const SETTLE: &str =
    "SELECT * FROM {queue_settle}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

pub(crate) type One<'a> = &'a (ClaimRef, Settle);
pub(crate) type Outcome = Result<Settled, StoreError>;

impl PostgresQueues {
    pub(super) async fn settle_all(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Outcome> {
        let mut outcomes: Vec<Option<Outcome>> = claims.iter().map(|_| None).collect();
        let mut asked = Vec::with_capacity(claims.len());
        for (place, one) in claims.iter().enumerate() {
            match check_settle(&one.0, &one.1, &self.can()) {
                Ok(()) => asked.push(place),
                Err(error) => outcomes[place] = Some(Err(error)),
            }
        }
        for places in asked.chunks(MAX_BATCH) {
            self.settle_some(queue, claims, places.to_vec(), &mut outcomes)
                .await;
        }
        let given = outcomes.into_iter();
        given.map(|one| one.unwrap_or_else(|| Err(odd()))).collect()
    }

    /// One statement, and again for those whose rows were locked.
    fn settle_some<'a>(
        &'a self,
        queue: &'a QueueName,
        claims: &'a [(ClaimRef, Settle)],
        mut places: Vec<usize>,
        outcomes: &'a mut [Option<Outcome>],
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut again = Again::new(self.client.response_timeout());
            while !places.is_empty() {
                let some: Vec<One<'_>> = places.iter().filter_map(|p| claims.get(*p)).collect();
                let told = match &*some {
                    // Alone, or together with others'.
                    [one] if !matches!(one.1, Settle::Extend(_)) => self
                        .gathered_settle(queue, one)
                        .await
                        .map(|told| vec![told]),
                    _ => self.ask(queue, &some).await,
                };
                let told = match told {
                    Ok(told) => told,
                    // It had no effect, and one of them may be the reason.
                    Err(error) if error.kind() == StoreErrorKind::Refusing && places.len() > 1 => {
                        for place in places {
                            self.settle_some(queue, claims, vec![place], outcomes).await;
                        }
                        return;
                    }
                    Err(error) => return give(&places, outcomes, &error),
                };
                let mut locked = Vec::new();
                for (place, one) in places.iter().zip(told) {
                    match one {
                        Some(outcome) => outcomes[*place] = Some(outcome),
                        None => locked.push(*place),
                    }
                }
                places = locked;
                if !places.is_empty()
                    && let Err(error) = again.pause(queue).await
                {
                    return give(&places, outcomes, &error);
                }
            }
        })
    }

    /// None for one whose row is locked.
    pub(super) async fn ask(
        &self,
        queue: &QueueName,
        some: &[One<'_>],
    ) -> Result<Vec<Option<Outcome>>, StoreError> {
        let renewals = some.iter().all(|(_, s)| matches!(s, Settle::Extend(_)));
        let over = match renewals {
            true => Over::Renewals,
            false => Over::Usual,
        };
        let (kinds, names): (Vec<i16>, Vec<String>) =
            some.iter().map(|(claim, _)| row::lane(&claim.lane)).unzip();
        let keep = self.client.retention_us();
        let sql = &self.statements.settle;
        let ask = || {
            let all = |of: &dyn Fn(&ClaimRef) -> Vec<u8>| -> Vec<Vec<u8>> {
                some.iter().map(|(claim, _)| of(claim)).collect()
            };
            let tokens = some.iter().map(|(claim, _)| number(claim.token.get()));
            query(sql.clone())
                .bind(queue.as_str().to_owned())
                .bind(kinds.clone())
                .bind(names.clone())
                .bind(all(&|claim| claim.item.as_bytes().to_vec()))
                .bind(all(&|claim| claim.owner.as_bytes().to_vec()))
                .bind(tokens.collect::<Vec<i64>>())
                .bind(some.iter().map(|(_, s)| op(s)).collect::<Vec<i16>>())
                .bind(some.iter().map(|(_, s)| time(s)).collect::<Vec<i64>>())
                .bind(some.iter().map(|(_, s)| counts(s)).collect::<Vec<bool>>())
                .bind(some.iter().map(|(_, s)| text(s)).collect::<Vec<_>>())
                .bind(keep)
        };
        // Of what ends a claim, the caller is to know that it was asked for twice.
        let rows = self.client.rows(over, renewals, queue, ask).await?;
        if !renewals {
            self.purge_now_and_then();
        }
        let mut told: Vec<_> = some.iter().map(|_| None).collect();
        for row in &rows {
            let n: i32 = column(row, "o_n")?;
            let place = usize::try_from(n - 1).map_err(|_| odd())?;
            *told.get_mut(place).ok_or_else(odd)? = settled(row)?.map(Ok);
        }
        match rows.len() == some.len() {
            true => Ok(told),
            false => Err(odd()),
        }
    }
}

fn give(places: &[usize], outcomes: &mut [Option<Outcome>], error: &StoreError) {
    for place in places {
        outcomes[*place] = Some(Err(error.clone()));
    }
}

fn settled(row: &PgRow) -> Result<Option<Settled>, StoreError> {
    Ok(Some(match column::<i32>(row, "o_code")? {
        1 => Settled::Done,
        2 => Settled::Lost(LostCause::Expired),
        3 => Settled::Lost(LostCause::TakenOver),
        4 => Settled::Lost(LostCause::Released),
        5 => Settled::Lost(LostCause::Revoked),
        6 => Settled::Lost(LostCause::Unknown),
        7 => Settled::Before,
        9 => return Ok(None),
        _ => return Err(odd()),
    }))
}

fn op(settle: &Settle) -> i16 {
    match settle {
        Settle::Extend(_) => 0,
        Settle::Complete => 1,
        Settle::Retry { .. } => 2,
        Settle::Bury { .. } => 3,
    }
}

fn time(settle: &Settle) -> i64 {
    match settle {
        Settle::Extend(ttl) => number(ttl.as_micros()),
        Settle::Retry { delay, .. } => delay_us(*delay),
        Settle::Complete | Settle::Bury { .. } => 0,
    }
}

fn counts(settle: &Settle) -> bool {
    !matches!(settle, Settle::Retry { counts: false, .. })
}

fn text(settle: &Settle) -> Option<String> {
    match settle {
        Settle::Retry { error, .. } => error.as_deref().map(shown),
        Settle::Bury { reason } => Some(shown(reason)),
        Settle::Extend(_) | Settle::Complete => None,
    }
}
