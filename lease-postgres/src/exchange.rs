//! One batch over one connection, and once more over another where the first was
//! gone.

use std::sync::Arc;
use std::time::Duration;

use lease_core::{Holder, Key, StoreError};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, SqlStr, query};
use tokio::time::Instant;

use crate::held::Held;
use crate::reply::{self, Replies};
use crate::request::{Kind, Request, statement};
use crate::sql::Statements;
use crate::wire::{Failure, Wire};
use crate::witness::Witness;

/// Sends batches over the connections of one runtime.
#[derive(Debug)]
pub(crate) struct Exchange {
    wire: Wire,
    statements: Arc<Statements>,
    retention_us: i64,
    /// The client's session, if leases end with it.
    witness: Option<Arc<Witness>>,
}

impl Exchange {
    pub(crate) fn new(
        wire: Wire,
        statements: Arc<Statements>,
        retention_us: i64,
        witness: Option<Arc<Witness>>,
    ) -> Self {
        Self {
            wire,
            statements,
            retention_us,
            witness,
        }
    }

    pub(crate) fn held(&self) -> &Arc<Held> {
        self.wire.held()
    }

    pub(crate) fn statements(&self) -> &Statements {
        &self.statements
    }

    pub(crate) fn response_timeout(&self) -> Duration {
        self.wire.response_timeout()
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
        let first = match self.wire.rows(ask()).await {
            Ok(rows) => return read(requests, &rows),
            Err(Failure::Gone(error)) => error,
            Err(Failure::Unsent(_)) => {
                let rows = self.wire.rows(ask()).await?;
                return read(requests, &rows);
            }
            // The next connection makes them anew, or says why not.
            Err(Failure::NoTables(_)) => {
                let rows = self.wire.rows(ask()).await?;
                return read(requests, &rows);
            }
            Err(other) => return Err(other),
        };
        let repeatable = first.is_unknown_outcome() && requests.iter().all(Request::may_repeat);
        // Who has waited for long already need not wait as long again.
        if !repeatable || begun.elapsed() > self.response_timeout() / 2 {
            return Err(Failure::Gone(first));
        }
        let acquires = requests.iter().any(|one| one.kind() == Kind::Acquire);
        match self.wire.rows(ask()).await {
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
        self.wire.rows(query(sql).bind(keys)).await.map(drop)
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
        self.wire
            .rows(query(self.statements.purge.clone()))
            .await
            .map(drop)
    }

    /// The whole answer to a statement that changes nothing, asked once more where that
    /// is of use.
    pub(crate) async fn look<'q, F>(&self, ask: F) -> Result<Vec<PgRow>, StoreError>
    where
        F: Fn() -> Query<'q, Postgres, PgArguments>,
    {
        match self.wire.rows(ask()).await {
            Err(Failure::Unsent(_) | Failure::NoTables(_)) => Ok(self.wire.rows(ask()).await?),
            answer => Ok(answer?),
        }
    }
}

fn read(requests: &[Request], rows: &[PgRow]) -> Result<Replies, Failure> {
    Replies::read(requests, rows).map_err(Failure::Gone)
}
