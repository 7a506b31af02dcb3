//! The lease inside a transaction of the user's own, over the user's connection.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use lease_core::{
    AdmitError, Error, Key, Lease, Lost, LostCause, LostReason, Owner, StaleToken, StoreError,
    StoreErrorKind, Token,
};
use sqlx::postgres::{PgArguments, PgConnection, PgDatabaseError};
use sqlx::query::QueryScalar;
use sqlx::{AssertSqlSafe, Postgres, SqlSafeStr as _, SqlStr, query_scalar};

use crate::errors::{self, Phase};
use crate::names::Names;

/// The lease and the data that it guards in one transaction: see
/// [`transactions`](crate::guide::transactions) for what each call gives, and what
/// it does not.
///
/// It knows where the store's tables are and nothing else: no connection, no
/// server. Cheap to clone. From [`PostgresStore::in_transaction`] or
/// [`PostgresOptions::in_transaction`].
///
/// ```no_run
/// use lease_postgres::sqlx::{Connection, PgConnection, query};
/// # async fn f(store: lease_postgres::PostgresStore, lease: lease_core::Lease, db: &mut PgConnection)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let guard = store.in_transaction();
/// let mut tx = db.begin().await?;
/// guard.hold(&mut tx, &lease).await?;
/// query("UPDATE ledger SET total = total + 1").execute(&mut *tx).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
///
/// [`PostgresStore::in_transaction`]: crate::PostgresStore::in_transaction
/// [`PostgresOptions::in_transaction`]: crate::PostgresOptions::in_transaction
#[derive(Clone)]
pub struct InTransaction {
    inner: Arc<Statements>,
}

struct Statements {
    hold: SqlStr,
    admit: SqlStr,
    is_inside: SqlStr,
}

impl InTransaction {
    pub(crate) fn new(names: &Names) -> Self {
        // Nothing of a user's but the names, and those are quoted.
        let call = |name: &str, values: &str| {
            let name = names.full(name);
            AssertSqlSafe(format!("SELECT {name}({values})::pg_catalog.text")).into_sql_str()
        };
        // The server takes it in a transaction alone; the lock is that of a read.
        let is_inside = format!("LOCK TABLE {} IN ACCESS SHARE MODE", names.full("gate"));
        Self {
            inner: Arc::new(Statements {
                hold: call("hold", "$1, $2, $3"),
                admit: call("admit", "$1, $2"),
                is_inside: AssertSqlSafe(is_inside).into_sql_str(),
            }),
        }
    }

    /// Proves that `lease` is live by the server's clock, and keeps it from being
    /// taken over, fenced, released or revoked until the transaction ends: what
    /// commits was done under the lease. Its renewals go on meanwhile.
    ///
    /// A lease from a [`Namespace`](lease_core::Namespace) has another key at the
    /// store: use [`hold_grant`](Self::hold_grant) with that one.
    ///
    /// Two round trips: the first one asks whether this is a transaction.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lease is not live. [`Error::Store`] with
    /// `InvalidInput` outside of a transaction, with `Unavailable` when the
    /// transaction must be begun again ([`must_begin_again`] says so) or the
    /// connection is lost, with `Refusing` where the database is not the store's
    /// or the role lacks a right. After any of them, roll back: nothing more
    /// can be done in the transaction.
    ///
    /// # Cancel safety
    /// The lease may or may not be kept; roll the transaction back.
    pub async fn hold(&self, transaction: &mut PgConnection, lease: &Lease) -> Result<(), Error> {
        let token = lease.check()?;
        self.hold_grant(transaction, lease.key(), lease.owner(), token)
            .await
    }

    /// As [`hold`](Self::hold), for a grant without a handle: what `lease acquire`
    /// printed, say.
    ///
    /// # Errors
    /// As [`hold`](Self::hold).
    ///
    /// # Cancel safety
    /// As [`hold`](Self::hold).
    pub async fn hold_grant(
        &self,
        transaction: &mut PgConnection,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<(), Error> {
        let call = query_scalar(self.inner.hold.clone())
            .bind(key.as_str().to_owned())
            .bind(owner.as_bytes().to_vec())
            .bind(number(token));
        match self::call(transaction, self.inner.is_inside.clone(), call).await? {
            Ok(()) => Ok(()),
            Err(error) => Err(match lost(&error) {
                Some(cause) => Lost::new(key.clone(), token, LostReason::Store(cause)).into(),
                None => failed("holding a lease in a transaction", error).into(),
            }),
        }
    }

    /// Admits `token` at `resource`, or refuses it because a higher one was
    /// admitted. Until the transaction ends no higher one is admitted there by
    /// anybody: what is written after it in the same transaction is written only
    /// by the newest holder.
    ///
    /// A transaction that is rolled back also forgets the token, and rightly: its
    /// write is gone as well.
    ///
    /// Two round trips: the first one asks whether this is a transaction.
    ///
    /// # Errors
    /// [`AdmitError::Stale`] names both tokens. [`AdmitError::Store`] as for
    /// [`hold`](Self::hold). After any of them, roll back: nothing more can be
    /// done in the transaction.
    ///
    /// # Cancel safety
    /// The token may or may not have been admitted; roll the transaction back.
    pub async fn admit(
        &self,
        transaction: &mut PgConnection,
        resource: &Key,
        token: Token,
    ) -> Result<(), AdmitError> {
        let call = query_scalar(self.inner.admit.clone())
            .bind(resource.as_str().to_owned())
            .bind(number(token));
        match self::call(transaction, self.inner.is_inside.clone(), call).await? {
            Ok(()) => Ok(()),
            Err(error) => Err(match admitted(&error) {
                Some(admitted) => AdmitError::Stale(StaleToken {
                    resource: resource.clone(),
                    presented: token,
                    admitted,
                }),
                None => failed("admitting a token in a transaction", error).into(),
            }),
        }
    }
}

/// Calls a function if this is a transaction.
///
/// Only the server knows that: the driver sees no `BEGIN` or `COMMIT` that is
/// sent as SQL.
pub(crate) async fn call(
    db: &mut PgConnection,
    is_inside: SqlStr,
    call: QueryScalar<'_, Postgres, String, PgArguments>,
) -> Result<Result<(), sqlx::Error>, StoreError> {
    match sqlx::query(is_inside).execute(&mut *db).await {
        Ok(_) => {}
        Err(error) if said(&error).is_some_and(|said| said.code() == "25P01") => {
            return Err(StoreError::with_source(
                StoreErrorKind::InvalidInput,
                "this is no transaction, so nothing was held, admitted or completed; begin one, \
                 and pass it on",
                error,
            ));
        }
        Err(error) => return Err(failed("looking for the transaction", error)),
    }
    // To the end of the answer.
    Ok(call.fetch_all(db).await.map(drop))
}

/// Shows nothing but that it is there: a name may be anything.
impl fmt::Debug for InTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InTransaction").finish_non_exhaustive()
    }
}

/// Whether an error of a transaction says that it has to be begun again from its
/// start, by a serialization failure (`40001`) or a deadlock (`40P01`): an error of
/// [`InTransaction`], of a statement of your own, or of the commit. Nothing of it
/// took effect.
#[must_use]
pub fn must_begin_again(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<sqlx::Error>()
            && let Some(said) = said(error)
        {
            return matches!(said.code(), "40001" | "40P01");
        }
        next = error.source();
    }
    false
}

fn said(error: &sqlx::Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// What the function `hold` found.
fn lost(error: &sqlx::Error) -> Option<LostCause> {
    Some(match cause(error)? {
        "expired" => LostCause::Expired,
        "taken_over" => LostCause::TakenOver,
        "released" => LostCause::Released,
        "revoked" => LostCause::Revoked,
        _ => LostCause::Unknown,
    })
}

/// What a function says of why it refused.
pub(crate) fn cause(error: &sqlx::Error) -> Option<&str> {
    let said = said(error).filter(|said| said.code() == "LE002")?;
    let cause = said.detail().and_then(|d| d.strip_prefix("cause: "));
    Some(cause.unwrap_or_default())
}

/// What the function `admit` found.
fn admitted(error: &sqlx::Error) -> Option<Token> {
    let said = said(error).filter(|said| said.code() == "LE001")?;
    let number = said.detail()?.strip_prefix("admitted: ")?;
    Token::new(number.parse().ok()?).ok()
}

/// What takes effect does so by the commit, which is still to come.
pub(crate) fn failed(doing: &str, error: sqlx::Error) -> StoreError {
    let advice = match said(&error).map(PgDatabaseError::code) {
        Some("40001" | "40P01") => "roll back, and begin the transaction again",
        Some("25P02") => "an earlier statement has failed; roll back",
        Some("25006") => "the transaction is read-only, or this server a standby",
        Some("3F000" | "42P01" | "42883") => {
            "this is not the store's database, or its tables were made by hand and not all of them: \
             run what `lease schema` (PostgresOptions::schema_sql) prints"
        }
        Some("42501") => {
            "give the role of this connection the rights that `lease schema --role` \
             (PostgresOptions::grants_sql) prints"
        }
        _ => return errors::classify(Phase::Unsent, doing, error),
    };
    let kind = match must_begin_again(&error) {
        true => StoreErrorKind::Unavailable,
        false => StoreErrorKind::Refusing,
    };
    let words = match said(&error) {
        Some(said) => format!("{doing}: {} ({}); {advice}", said.message(), said.code()),
        None => format!("{doing}: {advice}"),
    };
    StoreError::with_source(kind, words, error)
}

/// Tokens are far below the limit.
fn number(token: Token) -> i64 {
    i64::try_from(token.get()).unwrap_or(i64::MAX)
}
