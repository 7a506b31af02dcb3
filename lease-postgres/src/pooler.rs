//! Whether a connection keeps its session, found out by trying: a pooler such as
//! PgBouncer in transaction mode gives each transaction any of its own.
//!
//! A client's start carries a mark, a setting that only the session that begins
//! with it has. Who finds it there has that session to itself. A pooler opens its
//! sessions itself: it refuses the mark or drops it. Whether such a pooler shares
//! them shows when one client sets a mark and another one sees it, or the first one
//! misses it. That neither happens proves nothing: on a busy pooler it may be luck.
//! So a client that seems to keep its session listens then: a notification reaches
//! a listener that has asked for nothing only over a session that is still its own.
//! What cannot be shown is taken not to be so.
//!
//! The notification comes last, since on a pooler that shares sessions it could
//! reach somebody else, whose driver may take it amiss.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use lease_core::StoreError;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, Row as _, raw_sql};
use tokio::time::{Instant, timeout};

use crate::errors;

/// The name of the mark.
const MARK: &str = "leases.mark";
/// Looks of two clients at their session. One that is shared is found out by the
/// first, as a rule; on a busy pooler by most.
const LOOKS: usize = 12;
/// How long a session that was shown to be kept answers for the next connections:
/// many are opened together.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// A notification takes as long as a round trip; this is for a slow one.
const NOTIFIED_WITHIN: Duration = Duration::from_millis(500);
/// Between two hints to somebody who waits where nobody can listen.
pub(crate) const POLL: Duration = Duration::from_millis(500);
/// For a trial in all: a pooler whose sessions are used up makes it wait.
const TRIAL: Duration = Duration::from_secs(2);

/// What was found so far on the way to one server.
#[derive(Debug, Default)]
pub(crate) struct Way {
    /// Whether the session of the last connection was shared.
    shared: Mutex<Option<bool>>,
    /// When a pooler was last shown to keep sessions.
    kept: Mutex<Option<Instant>>,
    /// Why the last connection could not be opened, if it could not: a pooler that was
    /// told so by its server is silent for a while afterwards.
    failed: Mutex<Option<String>>,
}

impl Way {
    /// Whether the last connection that was opened shares its session with others;
    /// none if there was no connection yet.
    pub(crate) fn shares(&self) -> Option<bool> {
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was found does not hold: the next connection finds it out anew. A way that
    /// was found to be shared is left so.
    pub(crate) fn forget(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        *shared = shared.filter(|shared| *shared);
    }

    /// Remembers why a connection could not be opened.
    pub(crate) fn failed(&self, why: &StoreError) {
        let words = why.message().to_owned();
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(words);
    }

    /// Why none could be opened, if the last one could not.
    pub(crate) fn last_failure(&self) -> Option<String> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.clone()
    }

    fn found(&self, shared: bool) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(shared);
    }

    /// Opens a connection; true if its session is shared: whatever is set in it
    /// is gone, or is somebody else's, when a transaction ends.
    ///
    /// # Errors
    /// The driver's, of the connection itself. A trial that fails is no error: its
    /// session counts as shared.
    ///
    /// # Cancel safety
    /// Safe: all connections are closed again.
    pub(crate) async fn connect(
        &self,
        options: &PgConnectOptions,
    ) -> Result<(PgConnection, bool), sqlx::Error> {
        let mark = format!("{:032x}", rand::random::<u128>());
        let marked = options.clone().options([(MARK, &mark)]);
        let db = match marked.connect().await {
            Ok(mut db) => {
                if finds(&mut db, &mark).await? {
                    self.found(false);
                    return Ok((db, false));
                }
                db
            }
            Err(error) if errors::refused_at_start(&error) => options.connect().await?,
            Err(error) => return Err(error),
        };
        // A pooler that shared its sessions once is not asked again.
        let shared = self.shares() == Some(true) || !self.keeps_sessions(options).await;
        self.found(shared);
        Ok((db, shared))
    }

    /// Whether a connection with these options has one session until it is closed.
    async fn keeps_sessions(&self, options: &PgConnectOptions) -> bool {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept().is_some_and(|at| at.elapsed() < KEPT_FOR) {
            return true;
        }
        let trial = async { Ok(seems_kept(options).await? && is_notified(options).await?) };
        let keeps = matches!(timeout(TRIAL, trial).await, Ok(Ok::<_, sqlx::Error>(true)));
        *kept() = keeps.then(Instant::now);
        keeps
    }
}

/// Hints at regular times.
pub(crate) fn polls() -> BoxStream<'static, ()> {
    let ticks = stream::unfold((), |()| async {
        // Waiters that came together do not ask together for ever.
        tokio::time::sleep(POLL.mul_f64(rand::random_range(0.8..=1.0))).await;
        Some(((), ()))
    });
    ticks.boxed()
}

/// Whether the session began with this mark.
async fn finds(db: &mut PgConnection, mark: &str) -> Result<bool, sqlx::Error> {
    let text = AssertSqlSafe(format!("SELECT current_setting('{MARK}', true)"));
    let row = db.fetch_one(raw_sql(text)).await?;
    let found: Option<String> = row.try_get(0)?;
    Ok(found.as_deref() == Some(mark))
}

/// Whether of two clients neither sees the other's mark, nor the first one misses
/// its own. The mark that stays in a session of the pooler's means nothing there.
async fn seems_kept(options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let mark = format!("{:032x}", rand::random::<u128>());
    let mut one = options.connect().await?;
    let mut other = options.connect().await?;
    let set = AssertSqlSafe(format!("SELECT set_config('{MARK}', '{mark}', false)"));
    one.execute(raw_sql(set)).await?;
    for _ in 0..LOOKS {
        // Pools give out first what came back last.
        if finds(&mut other, &mark).await? || !finds(&mut one, &mark).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn is_notified(options: &PgConnectOptions) -> Result<bool, sqlx::Error> {
    let channel = format!("leases_trial_{:032x}", rand::random::<u128>());
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false)
        .connect_lazy_with(options.clone());
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.eager_reconnect(false);
    listener.ignore_pool_close_event(true);
    let mut other = options.connect().await?;
    listener.listen(&channel).await?;
    let mine = listener
        .fetch_one(raw_sql("SELECT pg_backend_pid()::text"))
        .await?;
    let tell = AssertSqlSafe(format!("NOTIFY {channel}; SELECT pg_backend_pid()::text"));
    let told = other.fetch_one(raw_sql(tell)).await?;
    if mine.try_get::<String, _>(0)? == told.try_get::<String, _>(0)? {
        // Two clients, both there, had the same session.
        return Ok(false);
    }
    // Reads only: what asks for something would get a session for that.
    let notified = timeout(NOTIFIED_WITHIN, listener.try_recv()).await;
    Ok(matches!(notified, Ok(Ok(Some(_)))))
}
