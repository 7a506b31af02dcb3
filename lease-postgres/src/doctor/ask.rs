//! Questions to the server: to each an answer, or a refusal.
//!
//! By the simple protocol, so that any pooler in between passes them on.

use std::fmt;
use std::time::Duration;

use lease_core::StoreError;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Row as _, raw_sql};
use tokio::time::timeout;

use crate::errors::{self, Phase};

/// What the server said to a question.
pub(super) type Answer<T> = Result<T, Refusal>;

/// Why it did not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The role has no right to ask.
    Rights,
    /// What it would have shown belongs to others.
    Hidden,
    /// Another error, by its code.
    Error(String),
    /// It answered something else than was asked for.
    Odd,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rights => f.write_str("the role may not ask"),
            Self::Hidden => f.write_str("the role may not see what others do"),
            Self::Error(code) => write!(f, "the server answers {code}"),
            Self::Odd => f.write_str("the answer cannot be read"),
        }
    }
}

/// A row of an answer.
#[derive(Debug)]
pub(super) struct Line(PgRow);

impl Line {
    pub(super) fn text(&self, column: &str) -> Answer<String> {
        self.0.try_get(column).map_err(|_| Refusal::Odd)
    }

    pub(super) fn number(&self, column: &str) -> Answer<i64> {
        self.0.try_get(column).map_err(|_| Refusal::Odd)
    }

    pub(super) fn flag(&self, column: &str) -> Answer<bool> {
        self.0.try_get(column).map_err(|_| Refusal::Odd)
    }

    /// Text; `None` for NULL.
    pub(super) fn words(&self, column: &str) -> Answer<Option<String>> {
        self.0.try_get(column).map_err(|_| Refusal::Odd)
    }

    /// `None` for NULL.
    pub(super) fn maybe(&self, column: &str) -> Option<i64> {
        self.0.try_get(column).ok().flatten()
    }
}

pub(super) struct Asker<'c> {
    db: &'c mut PgConnection,
    limit: Duration,
}

impl<'c> Asker<'c> {
    pub(super) fn new(db: &'c mut PgConnection, limit: Duration) -> Self {
        Self { db, limit }
    }

    /// # Errors
    /// Silence, and the end of the session.
    pub(super) async fn all(
        &mut self,
        sql: impl Into<String>,
    ) -> Result<Answer<Vec<Line>>, StoreError> {
        let asked = raw_sql(AssertSqlSafe(sql.into())).fetch_all(&mut *self.db);
        match timeout(self.limit, asked).await {
            Ok(Ok(rows)) => Ok(Ok(rows.into_iter().map(Line).collect())),
            Ok(Err(error)) if errors::spoils(&error) => Err(silence(error)),
            Ok(Err(error)) => {
                let code = error.as_database_error().and_then(|said| said.code());
                Ok(Err(match code.as_deref() {
                    Some("42501") => Refusal::Rights,
                    Some(code) => Refusal::Error(code.to_owned()),
                    None => Refusal::Odd,
                }))
            }
            Err(_) => Err(silent(self.limit)),
        }
    }

    /// The one row of an answer.
    ///
    /// # Errors
    /// As of [`all`](Self::all).
    pub(super) async fn one(&mut self, sql: impl Into<String>) -> Result<Answer<Line>, StoreError> {
        let answer = self.all(sql).await?;
        Ok(answer.and_then(|lines| lines.into_iter().next().ok_or(Refusal::Odd)))
    }

    /// Statements without an answer.
    ///
    /// # Errors
    /// As of [`all`](Self::all).
    pub(super) async fn run(&mut self, sql: impl Into<String>) -> Result<Answer<()>, StoreError> {
        Ok(self.all(sql).await?.map(drop))
    }
}

impl Asker<'_> {
    /// Whether a transaction can be begun: a pooler that gives each statement another
    /// session ends the client's.
    ///
    /// # Errors
    /// As of [`all`](Self::all).
    pub(super) async fn has_transactions(&mut self) -> Result<bool, StoreError> {
        let begun = raw_sql("BEGIN").execute(&mut *self.db);
        match timeout(self.limit, begun).await {
            Ok(Err(error)) if errors::by_statement(&error) => return Ok(false),
            Ok(Err(error)) if errors::spoils(&error) => return Err(silence(error)),
            Ok(_) => {}
            Err(_) => return Err(silent(self.limit)),
        }
        self.run("ROLLBACK").await?.ok();
        Ok(true)
    }
}

fn silent(limit: Duration) -> StoreError {
    StoreError::unavailable(format!(
        "the server was silent for {limit:?} when the doctor asked; see whether it runs, and raise \
         response_timeout if it is only slow"
    ))
}

fn silence(error: sqlx::Error) -> StoreError {
    errors::classify(Phase::Unsent, "Postgres stopped answering", error)
}
