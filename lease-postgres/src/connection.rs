//! One connection of the store's own: opened, set up, and looked at for as long
//! as it is waited for.

use std::sync::Arc;
use std::time::Duration;

use lease_core::StoreError;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, SqlStr, raw_sql};
use tokio::time::{Instant, timeout};

use crate::address::Address;
use crate::errors;
use crate::pooler::Way;
use crate::sql;

/// The longest patience with a server that is waited for, of somebody who does
/// not wait for it any more.
const SILENCE: Duration = Duration::from_millis(100);
/// And this many of the connection's own round trips.
const SILENT_ROUND_TRIPS: u32 = 4;

/// What is being done while there is none yet.
pub(crate) const CONNECTING: &str = "cannot connect to Postgres";

/// How connections are opened.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) connect: PgConnectOptions,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    /// Commits need not be on the disk before they are answered.
    pub(crate) asynchronous: bool,
    pub(crate) way: Arc<Way>,
}

impl Origin {
    /// Opens a connection and sets its session up.
    ///
    /// # Cancel safety
    /// Safe: the connection is closed again.
    pub(crate) async fn open(&self) -> Result<Up, StoreError> {
        let opening = async {
            let (mut db, shared) = self.way.connect(&self.connect).await?;
            let asked = Instant::now();
            // A session that others share is set up by each transaction.
            match shared {
                true => db.ping().await?,
                false => {
                    let set_up = raw_sql(AssertSqlSafe(self.set_up()));
                    set_up.execute(&mut db).await?;
                }
            }
            let begin = shared.then(|| self.begin());
            Ok((db, asked.elapsed(), begin))
        };
        match timeout(self.connect_timeout, opening).await {
            Ok(Ok((db, round_trip, begin))) => Ok(Up {
                db,
                begin,
                round_trip,
            }),
            Ok(Err(error)) => Err(self.unreached(CONNECTING, error)),
            Err(_) => Err(self.silent(CONNECTING)),
        }
    }

    /// Why a connection could not be opened or set up.
    pub(crate) fn unreached(&self, doing: &str, error: sqlx::Error) -> StoreError {
        let error = Address::of(&self.connect).unreached(doing, error);
        self.way.failed(&error);
        error
    }

    /// As the server, or what stands before it, did not say.
    pub(crate) fn silent(&self, doing: &str) -> StoreError {
        Address::of(&self.connect).silent(doing, self.connect_timeout, self.way.last_failure())
    }

    /// What a session begins with, in one message.
    pub(crate) fn set_up(&self) -> String {
        format!("{}; {}", self.settings("SET", false), sql::STAY)
    }

    /// What each transaction begins with in a session that others share.
    pub(crate) fn begin(&self) -> String {
        // A client that stands still, or is gone without a word, in the midst of it
        // keeps no row locked and no session of the pooler's for long.
        let idle = self.response_timeout.as_millis().max(1);
        format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; {}; \
             SET LOCAL idle_in_transaction_session_timeout TO {idle}",
            self.settings("SET LOCAL", true)
        )
    }

    fn settings(&self, set: &str, local: bool) -> String {
        // The server gives up before we do, so that it says that nothing took
        // effect.
        let statement = self.response_timeout.mul_f64(0.8).as_millis().max(1);
        let lock = self.response_timeout.mul_f64(0.5).as_millis().max(1);
        let mut all: Vec<String> = sql::SETTINGS
            .iter()
            .map(|(name, value)| format!("{set} {name} TO {value}"))
            .collect();
        all.push(format!("{set} statement_timeout TO {statement}"));
        all.push(format!("{set} lock_timeout TO {lock}"));
        // The one way to commit that is stronger stays.
        all.push(match self.asynchronous {
            true => format!("{set} synchronous_commit TO off"),
            false => format!(
                "SELECT set_config('synchronous_commit', 'on', {local}) \
                 WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
            ),
        });
        all.join("; ")
    }
}

/// A connection that stood when we last looked.
#[derive(Debug)]
pub(crate) struct Up {
    pub(crate) db: PgConnection,
    /// How each request begins its transaction, where the session is shared.
    pub(crate) begin: Option<String>,
    /// The longest of late.
    round_trip: Duration,
}

impl Up {
    /// Prepares statements; none as the error is silence.
    pub(crate) async fn prepare(
        &mut self,
        statements: &[SqlStr],
        limit: Duration,
    ) -> Result<(), Option<sqlx::Error>> {
        if self.begin.is_some() {
            // They would be prepared in somebody else's session.
            return Ok(());
        }
        let preparing = async {
            for statement in statements {
                self.db.prepare(statement.clone()).await?;
            }
            Ok(())
        };
        match timeout(limit, preparing).await {
            Ok(prepared) => prepared.map_err(Some),
            Err(_) => Err(None),
        }
    }

    /// An answer came to what was sent at `sent`.
    pub(crate) fn answered(&mut self, sent: Instant) {
        // What is long counts at once, and is forgotten slowly.
        let known = self.round_trip;
        self.round_trip = sent.elapsed().max(known - known / 8);
    }

    /// Reads the answer that nobody waits for any more, so that the connection
    /// can be used again; gives it up when that takes longer than it should.
    pub(crate) async fn drain(mut self, sent: Instant) -> Option<Self> {
        let right = SILENCE.max(self.round_trip.saturating_mul(SILENT_ROUND_TRIPS));
        let left = right.saturating_sub(sent.elapsed());
        let drained = timeout(left, async {
            loop {
                // A transaction that was left open ends here.
                let last = match self.begin {
                    Some(_) => raw_sql("ROLLBACK").execute(&mut self.db).await.map(drop),
                    None => self.db.ping().await,
                };
                match last {
                    Ok(()) => return true,
                    // The answer was an error; the end of it is still to come.
                    Err(error) if !errors::spoils(&error) => {}
                    Err(_) => return false,
                }
            }
        });
        drained.await.unwrap_or(false).then_some(self)
    }
}
