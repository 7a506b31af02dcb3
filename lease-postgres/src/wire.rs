//! One statement over one connection, and what its failure means.

use std::sync::Arc;
use std::time::Duration;

use lease_core::StoreError;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, raw_sql};
use tokio::time::timeout;

use crate::errors::{self, Phase};
use crate::held::{Held, Taken};

/// Why a statement has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing took effect, and the connection is as good as before.
    Said(StoreError),
    /// The tables are gone: nothing took effect.
    NoTables(StoreError),
    /// Others' statements were in the way: nothing took effect, ask again.
    Raced(StoreError),
    /// The connection went before anything could take effect, or is not to be used
    /// again: nothing did.
    Unsent(StoreError),
    /// Anything may have taken effect, as the error says.
    Gone(StoreError),
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Said(error)
            | Failure::NoTables(error)
            | Failure::Raced(error)
            | Failure::Unsent(error)
            | Failure::Gone(error) => error,
        }
    }
}

/// Sends statements over the connections of one runtime.
#[derive(Debug)]
pub(crate) struct Wire {
    held: Arc<Held>,
    /// Where there is no connection of its own to be had.
    instead: Option<Arc<Held>>,
    response_timeout: Duration,
}

impl Wire {
    pub(crate) fn new(held: Arc<Held>, response_timeout: Duration) -> Self {
        Self {
            held,
            instead: None,
            response_timeout,
        }
    }

    /// Uses connections of others when it cannot have one of its own at once: a
    /// server that is full, say, or one that answers to no new client.
    pub(crate) fn or_else(mut self, instead: &Arc<Held>) -> Self {
        self.instead = Some(Arc::clone(instead));
        self
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        &self.held
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    fn forget_idle(&self) {
        self.held.forget_idle();
        if let Some(instead) = &self.instead {
            instead.forget_idle();
        }
    }

    /// A connection of its own; of others, if one of those is idle while its own are
    /// being opened or cannot be had.
    async fn connection(&self) -> Result<Taken, StoreError> {
        let Some(instead) = &self.instead else {
            return self.held.take().await;
        };
        tokio::select! {
            biased;
            own = self.held.take() => match own {
                Ok(taken) => Ok(taken),
                Err(_) => instead.take().await,
            },
            other = instead.idle() => Ok(other),
        }
    }

    /// The whole answer to one statement.
    pub(crate) async fn rows(
        &self,
        statement: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, Failure> {
        let mut taken = self.connection().await.map_err(Failure::Gone)?;
        // Of the others there.
        let held = Arc::clone(taken.held());
        let Some(up) = taken.ask() else {
            return Err(Failure::Said(errors::odd()));
        };
        // To the end of the answer: only that says that it was committed.
        let asking = async {
            match &up.begin {
                None => (statement.fetch_all(&mut up.db).await, Phase::Sent),
                Some(begin) => in_transaction(&mut up.db, begin, statement).await,
            }
        };
        let mut phase = Phase::Sent;
        let answer = timeout(self.response_timeout, asking).await;
        match answer.map(|(answer, at)| {
            phase = at;
            answer
        }) {
            Ok(Ok(rows)) => {
                taken.answered();
                Ok(rows)
            }
            Ok(Err(error)) if errors::stale(&error) => {
                taken.failed();
                // So are the others' statements; and what was found of the way may be wrong.
                held.forget_way();
                self.forget_idle();
                Err(Failure::Unsent(errors::classify(
                    Phase::Unsent,
                    DOING,
                    error,
                )))
            }
            Ok(Err(error)) if errors::spoils(&error) => {
                taken.failed();
                // Most likely the others lead to nowhere, too.
                self.forget_idle();
                let error = errors::classify(phase, DOING, error);
                Err(match phase {
                    Phase::Unsent => Failure::Unsent(error),
                    Phase::Sent => Failure::Gone(error),
                })
            }
            Ok(Err(error)) => {
                let failure = match &error {
                    error if errors::raced(error) => Failure::Raced,
                    error if errors::tables_gone(error) => Failure::NoTables,
                    _ => Failure::Said,
                };
                if errors::tables_gone(&error) {
                    taken.failed();
                    held.tables_are_gone();
                } else if errors::read_only(&error) {
                    // The address may lead to another server by now.
                    taken.failed();
                    held.forget_idle();
                } else {
                    taken.answered();
                }
                Err(failure(errors::classify(Phase::Sent, DOING, error)))
            }
            Err(_) => {
                taken.failed();
                Err(Failure::Gone(StoreError::unknown_outcome(format!(
                    "the server was silent for {:?}, so the connection was given up; see whether it \
                     runs, or has a commit that waits for a standby, and raise response_timeout if \
                     it is only slow",
                    self.response_timeout
                ))))
            }
        }
    }
}

/// One statement in a transaction of its own, where the session is shared: it is
/// read, bound and answered in one session, with the settings that it relies on.
/// Only the commit can have an unknown outcome.
async fn in_transaction(
    db: &mut PgConnection,
    begin: &str,
    statement: Query<'_, Postgres, PgArguments>,
) -> (Result<Vec<PgRow>, sqlx::Error>, Phase) {
    let begun = raw_sql(AssertSqlSafe(begin)).execute(&mut *db).await;
    let answer = match begun {
        // Without a name: those of others are in the same session.
        Ok(_) => statement.persistent(false).fetch_all(&mut *db).await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(rows) => {
            let committed = raw_sql("COMMIT").execute(&mut *db).await;
            (committed.map(|_| rows), Phase::Sent)
        }
        Err(error) if errors::spoils(&error) => (Err(error), Phase::Unsent),
        Err(error) => match raw_sql("ROLLBACK").execute(&mut *db).await {
            Err(gone) if errors::spoils(&gone) => (Err(gone), Phase::Unsent),
            _ => (Err(error), Phase::Unsent),
        },
    }
}

const DOING: &str = "asking Postgres";
