//! One connection with its advisory lock, and whether it is a session of the
//! server's at all.

use std::time::Duration;

use lease_core::StoreError;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Error, Row as _, raw_sql};
use tokio::time::timeout;

use crate::connection::Origin;

const DOING: &str = "opening the session of crash detection";

/// A connection that keeps a lock.
///
/// All of it goes by the simple protocol, which a pooler takes too: it must be
/// found out by what it does.
#[derive(Debug)]
pub(super) struct Connected {
    db: PgConnection,
    id: i64,
}

/// What a look at the connection found.
pub(super) enum Checked {
    /// The server's session that has the lock answered.
    Mine,
    /// Another session answered.
    Another,
    Lost(String),
}

impl Connected {
    /// Connects, sees to it that this is one session of the server's, and takes the
    /// lock.
    pub(super) async fn open(
        origin: &Origin,
        grace: Duration,
        id: i64,
    ) -> Result<Self, StoreError> {
        let failed = |error| origin.unreached(DOING, error);
        let opening = async {
            let (db, shared) = origin.way.connect(&origin.connect).await.map_err(failed)?;
            if shared {
                return Err(pooled());
            }
            let mut this = Self { db, id };
            if !this.lock().await.map_err(failed)? {
                return Err(StoreError::unavailable(format!(
                    "{DOING}: somebody has an advisory lock of the number that was drawn; try again"
                )));
            }
            this.set_up(grace).await.map_err(failed)?;
            Ok(this)
        };
        timeout(origin.connect_timeout, opening)
            .await
            .unwrap_or_else(|_| Err(origin.silent(DOING)))
    }

    /// Takes the lock, and leaves a mark in the same session: whoever sees the mark
    /// is in the session that has the lock, since what takes one away (the end of
    /// the session, a pooler's `DISCARD ALL`) takes both.
    async fn lock(&mut self) -> Result<bool, Error> {
        let id = self.id;
        let sql = format!(
            "SELECT pg_catalog.pg_try_advisory_lock({id}) AS locked, \
             pg_catalog.set_config('leases.witness', '{id}', false) AS mark"
        );
        let row = raw_sql(AssertSqlSafe(sql)).fetch_one(&mut self.db).await?;
        row.try_get("locked")
    }

    /// The server notices soon when this machine is gone, and does not end the
    /// session for being idle. What does not apply, as over a socket, is ignored.
    async fn set_up(&mut self, grace: Duration) -> Result<(), Error> {
        let idle_s = grace.as_secs().max(1);
        let every_s = (grace.as_secs() / 3).max(1);
        let unheard_ms = (grace * 2).as_millis().max(2_000);
        let sql = format!(
            "SELECT pg_catalog.set_config('tcp_keepalives_idle', '{idle_s}', false), \
             pg_catalog.set_config('tcp_keepalives_interval', '{every_s}', false), \
             pg_catalog.set_config('tcp_keepalives_count', '2', false), \
             pg_catalog.set_config('tcp_user_timeout', '{unheard_ms}', false); \
             SELECT pg_catalog.set_config('idle_session_timeout', '0', false) \
             WHERE pg_catalog.current_setting('idle_session_timeout', true) IS NOT NULL"
        );
        raw_sql(AssertSqlSafe(sql)).execute(&mut self.db).await?;
        Ok(())
    }

    /// Whether the session that has the lock is there.
    pub(super) async fn check(&mut self, patience: Duration) -> Checked {
        match timeout(patience, seen(&mut self.db)).await {
            Ok(Ok(mark)) if mark == Some(self.id) => Checked::Mine,
            Ok(Ok(_)) => Checked::Another,
            Ok(Err(error)) => Checked::Lost(error.to_string()),
            Err(_) => Checked::Lost(format!("no answer within {patience:?}")),
        }
    }
}

/// The mark of the session that answers.
async fn seen(db: &mut PgConnection) -> Result<Option<i64>, Error> {
    let row = raw_sql("SELECT pg_catalog.current_setting('leases.witness', true) AS mark")
        .fetch_one(db)
        .await?;
    let mark: Option<String> = row.try_get("mark")?;
    Ok(mark.and_then(|mark| mark.parse().ok()))
}

pub(super) fn pooled() -> StoreError {
    StoreError::refusing(
        "crash detection needs a session of its own, and a pooler between here and the server gives \
         each transaction another one; connect to the server directly, let the pooler keep sessions, \
         or open the store without crash_detection",
    )
}
