//! Transactions of the user's own.

use std::time::Duration;

use lease_core::{Error, LostCause, LostReason, StoreErrorKind, Token};
use lease_postgres::PostgresStore;
use lease_postgres::sqlx::{AssertSqlSafe, PgConnection, query, raw_sql};

use super::options;

pub(crate) const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
const PATIENCE: Duration = Duration::from_millis(600);

pub(crate) async fn open(schema: &str) -> PostgresStore {
    let options = options(schema).response_timeout(PATIENCE);
    options.open().await.unwrap()
}

pub(crate) async fn run(db: &mut PgConnection, sql: &str) {
    let sql = AssertSqlSafe(sql.to_owned());
    raw_sql(sql).execute(db).await.unwrap();
}

/// As if its time had run out, or would in so many milliseconds.
pub(crate) async fn expire(db: &mut PgConnection, schema: &str, name: &str, in_ms: i64) {
    let sql = format!(
        "UPDATE {schema}.lease_keys SET expires_us = \
         (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $2 * 1000 WHERE key = $1"
    );
    let sql = query(AssertSqlSafe(sql)).bind(name).bind(in_ms);
    sql.execute(db).await.unwrap();
}

/// A transaction that has looked at something.
pub(crate) async fn snapshot(db: &mut PgConnection, level: &str) {
    let begin = format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM pg_class");
    run(db, &begin).await;
}

pub(crate) fn cause(held: Result<(), Error>) -> LostCause {
    match held {
        Err(Error::Lost(lost)) => match lost.reason {
            LostReason::Store(cause) => cause,
            other => panic!("lost by the client: {other:?}"),
        },
        other => panic!("not lost: {other:?}"),
    }
}

pub(crate) fn kind(error: &Error) -> StoreErrorKind {
    match error {
        Error::Store(error) => error.kind(),
        other => panic!("no error of the store: {other:?}"),
    }
}

pub(crate) fn token(n: u64) -> Token {
    Token::new(n).unwrap()
}
