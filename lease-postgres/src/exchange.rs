//! One batch over one connection, and once more over another where the first was
//! gone.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{Holder, Key, StoreError};
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres, SqlStr, query, raw_sql};
use tokio::time::{Instant, timeout};

use crate::errors::{self, Phase};
use crate::held::{Held, Taken};
use crate::reply::{self, Replies};
use crate::request::{Kind, Request, statement};
use crate::sql::Statements;
use crate::witness::Witness;

/// Why a batch has no answers.
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

/// Sends batches over the connections of one runtime.
#[derive(Debug)]
pub(crate) struct Exchange {
    held: Arc<Held>,
    /// Where there is no connection of its own to be had.
    instead: Option<Arc<Held>>,
    statements: Arc<Statements>,
    retention_us: i64,
    response_timeout: Duration,
    /// The client's session, if leases end with it.
    witness: Option<Arc<Witness>>,
}

impl Exchange {
    pub(crate) fn new(
        held: Arc<Held>,
        statements: Arc<Statements>,
        retention_us: i64,
        response_timeout: Duration,
        witness: Option<Arc<Witness>>,
    ) -> Self {
        Self {
            held,
            instead: None,
            statements,
            retention_us,
            response_timeout,
            witness,
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

    pub(crate) fn statements(&self) -> &Statements {
        &self.statements
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.response_timeout
    }

    /// The answers to requests of one kind, no two of them for one key.
    ///
    /// A connection that turns out to be gone (the server was restarted, or
    /// somebody closes idle ones) gets one more try over a new one, if none of
    /// the requests minds to take effect twice.
    ///
    /// # Cancel safety
    /// The batch may or may not take effect. The connection is used again once
    /// it has answered, or given up.
    pub(crate) async fn send(&self, requests: &[Request]) -> Result<Replies, Failure> {
        let begun = Instant::now();
        let ask = || {
            // The one that stands now, also the second time.
            let session = self.witness.as_ref().and_then(|witness| witness.carried());
            statement(&self.statements, requests, self.retention_us, session)
        };
        let first = match self.rows(ask()).await {
            Ok(rows) => return read(requests, &rows),
            Err(Failure::Gone(error)) => error,
            Err(Failure::Unsent(_)) => {
                let rows = self.rows(ask()).await?;
                return read(requests, &rows);
            }
            // The next connection makes them anew, or says why not.
            Err(Failure::NoTables(_)) => {
                let rows = self.rows(ask()).await?;
                return read(requests, &rows);
            }
            Err(other) => return Err(other),
        };
        let repeatable = first.is_unknown_outcome() && requests.iter().all(Request::may_repeat);
        // Who has waited for long already need not wait as long again.
        if !repeatable || begun.elapsed() > self.response_timeout / 2 {
            return Err(Failure::Gone(first));
        }
        let acquires = requests.iter().any(|one| one.kind() == Kind::Acquire);
        match self.rows(ask()).await {
            Ok(rows) if acquires => Ok(read(requests, &rows)?.of_copies(&first)),
            Ok(rows) => read(requests, &rows),
            // The first one may have taken effect.
            Err(Failure::Gone(error)) if error.is_unknown_outcome() => Err(Failure::Gone(error)),
            Err(_) => Err(Failure::Gone(first)),
        }
    }

    /// Tells those who wait that these keys became free: in a transaction of its
    /// own, since a notification keeps others' commits waiting.
    pub(crate) async fn notify(&self, keys: Vec<String>) -> Result<(), Failure> {
        let sql: SqlStr = self.statements.notify.clone();
        self.rows(query(sql).bind(keys)).await.map(drop)
    }

    /// Who was granted a key whose row cannot be had, if that grant has ended by
    /// nothing but its time: a transaction keeps it, most likely its holder's.
    pub(crate) async fn kept(&self, key: &Key) -> Result<Option<Holder>, StoreError> {
        let look = || query(self.statements.inspect.clone()).bind(vec![key.to_string()]);
        match self.look(look).await?.first() {
            Some(row) => reply::kept(row),
            None => Ok(None),
        }
    }

    /// Forgets tombstones whose time is over.
    pub(crate) async fn purge(&self) -> Result<(), Failure> {
        self.rows(query(self.statements.purge.clone()))
            .await
            .map(drop)
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

    /// The whole answer to a statement that changes nothing, asked once more where that
    /// is of use.
    pub(crate) async fn look<'q, F>(&self, ask: F) -> Result<Vec<PgRow>, StoreError>
    where
        F: Fn() -> Query<'q, Postgres, PgArguments>,
    {
        match self.rows(ask()).await {
            Err(Failure::Unsent(_) | Failure::NoTables(_)) => Ok(self.rows(ask()).await?),
            answer => Ok(answer?),
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

fn read(requests: &[Request], rows: &[PgRow]) -> Result<Replies, Failure> {
    Replies::read(requests, rows).map_err(Failure::Gone)
}
