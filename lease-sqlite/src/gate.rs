//! The fenced write: a token is checked in the transaction that writes.

use async_trait::async_trait;
use lease_core::{AdmitError, Gate, Key, StaleToken, StoreError, Token};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Row as _, query, raw_sql};

use crate::SqliteStore;
use crate::errors::{Phase, classify};
use crate::request::Admit;
use crate::row::token as stored_token;
use crate::sql;

/// The table that [`admit`] keeps its memory in; for those who make their
/// tables by migrations. It may stand beside any other tables.
pub const GATE_TABLE_SQL: &str = include_str!("gate.sql");

/// Makes the table that [`admit`] needs, if it is missing.
///
/// # Errors
/// As every change of the database: busy is `Unavailable`, a read-only file
/// `Refusing`, and so on.
///
/// # Cancel safety
/// The table may or may not have been made; repeating it is safe.
pub async fn create_gate_table(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    raw_sql(GATE_TABLE_SQL)
        .execute(connection)
        .await
        .map(drop)
        .map_err(|e| classify(Phase::NoEffect, "making the table lease_gate", e))
}

/// Admits `token` at `resource`, or refuses it because a higher one was
/// admitted, **inside the caller's own transaction**: what is written after it
/// in the same transaction is written only by the newest holder.
///
/// The check and the raise are one statement. Begin with `BEGIN IMMEDIATE`: a
/// transaction that starts by reading may be refused (`Unavailable`) when it
/// comes to write. After any error, roll back. A transaction that is rolled
/// back also forgets the token, and rightly: its write is gone as well.
///
/// Outside of a transaction the token is remembered, and the write that
/// follows is no longer in the same atomic step.
///
/// ```no_run
/// use lease_sqlite::sqlx::{self, Connection, SqliteConnection};
/// # async fn f(db: &mut SqliteConnection, ledger: lease_core::Key, token: lease_core::Token)
/// #     -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = db.begin_with("BEGIN IMMEDIATE").await?;
/// lease_sqlite::admit(&mut tx, &ledger, token).await?;
/// sqlx::query("UPDATE ledger SET total = total + 1").execute(&mut *tx).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`AdmitError::Stale`] names both tokens. [`AdmitError::Store`] when the
/// database fails, the table is missing ([`create_gate_table`]) or its row is
/// none of ours.
///
/// # Cancel safety
/// The token may or may not have been admitted; roll the transaction back.
pub async fn admit(
    connection: &mut SqliteConnection,
    resource: &Key,
    token: Token,
) -> Result<(), AdmitError> {
    let failed = |e| classify(Phase::NoEffect, "admitting a token", e);
    let number = i64::try_from(token.get()).unwrap_or(i64::MAX);
    // All rows, not the first one: outside of a transaction, only the end of
    // the statement tells whether it was committed.
    let admitted = query(sql::ADMIT)
        .bind(resource.as_str())
        .bind(number)
        .fetch_all(&mut *connection)
        .await
        .map_err(failed)?;
    if !admitted.is_empty() {
        return Ok(());
    }
    let row = query(sql::ADMITTED)
        .bind(resource.as_str())
        .fetch_one(connection)
        .await
        .map_err(failed)?;
    let admitted = row
        .try_get::<i64, _>("token")
        .map_err(|e| e.to_string())
        .and_then(|number| stored_token("token", number))
        .map_err(|what| foreign(resource.as_str(), &what))?;
    Err(StaleToken {
        resource: resource.clone(),
        presented: token,
        admitted,
    }
    .into())
}

pub(crate) fn foreign(resource: &str, what: &str) -> StoreError {
    StoreError::refusing(format!(
        "the row of {resource:?} in the table lease_gate holds what no gate writes: {what}; \
         it was left as it is, and no token is admitted until it is repaired"
    ))
}

/// A gate of its own in the store's file, durable and shared by every process
/// of the host. Prefer [`admit`] where the write goes to a database too.
#[async_trait]
impl Gate for SqliteStore {
    async fn admit(&self, resource: &Key, token: Token) -> Result<(), AdmitError> {
        let resource = resource.clone();
        Ok(self.ask(Admit { resource, token }).await??)
    }
}
