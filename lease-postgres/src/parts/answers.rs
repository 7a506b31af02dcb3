//! What is read from an answer, and what a function in somebody's transaction says.

use lease_core::StoreError;
use sqlx::Postgres;
use sqlx::SqlStr;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::QueryScalar;

use crate::errors;
use crate::in_transaction;
use crate::reply;

/// An answer that is none of the statements'.
#[must_use]
pub fn odd() -> StoreError {
    errors::odd()
}

/// Calls a function in somebody's transaction, if it is one: `looks` is a statement that
/// the server takes in a transaction alone. What the function refused by `LE002`
/// is its cause.
///
/// # Errors
/// As of [`InTransaction::hold`](crate::InTransaction::hold).
///
/// # Cancel safety
/// It may or may not have been called; roll back.
pub async fn call_in(
    transaction: &mut PgConnection,
    looks: SqlStr,
    call: QueryScalar<'_, Postgres, String, PgArguments>,
    doing: &str,
) -> Result<Result<(), String>, StoreError> {
    match in_transaction::call(transaction, looks, call).await? {
        Ok(()) => Ok(Ok(())),
        Err(error) => match in_transaction::cause(&error) {
            Some(cause) => Ok(Err(cause.to_owned())),
            None => Err(in_transaction::failed(doing, error)),
        },
    }
}

/// A column of an answer.
///
/// # Errors
/// `Refusing` for what the store does not write; `UnknownOutcome` for a column that is
/// not there.
pub fn column<'r, T>(row: &'r PgRow, name: &str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
{
    let unread = |what: Option<String>| what.map_or_else(odd, |what| foreign(&what));
    reply::read(row, name).map_err(unread)
}

/// A row of the queues' tables that somebody else wrote into.
#[must_use]
pub fn foreign(what: &str) -> StoreError {
    StoreError::refusing(format!(
        "a row of the queues' tables holds what this store does not write: {what}; it was left as \
         it is, repair or delete it"
    ))
}
