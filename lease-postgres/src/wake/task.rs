//! The task that owns a connection for wake-ups: opens it while somebody
//! watches, marks the keys that are watched, passes notifications on, and opens
//! it again when it is lost.

use std::time::Duration;

use lease_core::StoreError;
use sqlx::postgres::{PgListener, PgPoolOptions};
use sqlx::{AssertSqlSafe, Row as _, query, raw_sql};
use tokio::time::{Instant, sleep_until, timeout};

use super::hub::Hub;
use super::{Place, Source};
use crate::address::Address;
use crate::errors::{Phase, classify, odd};

/// How long a key counts as waited for after it was marked.
const WAITED_FOR: Duration = Duration::from_secs(30);
/// So a mark never ends while somebody waits, and a silent connection is noticed.
const MARK_EVERY: Duration = Duration::from_secs(8);
/// Until a row that was locked is tried again.
const LATE: Duration = Duration::from_millis(50);
/// Keys in one statement.
const AT_ONCE: usize = 500;

/// Before the first attempt after a failure.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Before later ones; and a connection that lasted this long was a good one.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn run(place: Place, source: Source) {
    let hub = &*place.hub;
    let mut pause = Pause::new();
    loop {
        if let Some(idle_until) = hub.idle_until() {
            if Instant::now() >= idle_until {
                if place.retire() {
                    return;
                }
            } else {
                // A watcher, or the end.
                tokio::select! {
                    () = hub.changed() => {}
                    () = sleep_until(idle_until) => {}
                }
            }
            continue;
        }
        sleep_until(pause.until).await;
        if !hub.is_watched() {
            continue;
        }
        let begun = Instant::now();
        // The driver's futures are large, and this one is rarely made.
        let end = Box::pin(connect_and_serve(hub, &source)).await;
        hub.disconnected(end.as_ref().err());
        if let Err(error) = end {
            tracing::debug!(
                target: "leases",
                error = %error,
                "wake-ups have no connection; it is tried again while somebody watches"
            );
            if begun.elapsed() >= LONGEST_PAUSE {
                pause = Pause::new();
            }
            pause.begin();
        }
    }
}

/// Returns without an error when nobody watches any more.
async fn connect_and_serve(hub: &Hub, source: &Source) -> Result<(), StoreError> {
    let mut listener = listen(source).await?;
    let mut mark_at = Instant::now();
    loop {
        let all = Instant::now() >= mark_at;
        let keys = hub.to_mark(all);
        if all && keys.is_empty() {
            // Whether it is still there.
            mark(&mut listener, source, &[]).await?;
        }
        for keys in keys.chunks(AT_ONCE) {
            let late = mark(&mut listener, source, keys).await?;
            hub.marked(keys, &late);
        }
        if all {
            mark_at = Instant::now() + MARK_EVERY;
        }
        // Those that came while it was busy with that.
        while let Some(notification) = listener.next_buffered() {
            hub.hint(notification.payload());
        }
        let mut wake = match hub.any_late() {
            true => mark_at.min(Instant::now() + LATE),
            false => mark_at,
        };
        if let Some(idle_until) = hub.idle_until() {
            if Instant::now() >= idle_until {
                return Ok(());
            }
            wake = wake.min(idle_until);
        }
        tokio::select! {
            // Never in the midst of a message: it is read whole or not at all.
            received = listener.try_recv() => match received {
                Ok(Some(notification)) => hub.hint(notification.payload()),
                Ok(None) => return Err(StoreError::unavailable(
                    "the server closed the connection for wake-ups; see its log",
                )),
                Err(error) => return Err(classify(Phase::Unsent, "waiting for wake-ups", error)),
            },
            () = hub.changed() => {}
            () = sleep_until(wake) => {}
        }
    }
}

/// A connection that listens. The driver keeps it in a pool of one, and would
/// connect anew by itself; it is dropped whenever anything fails, so that nobody
/// takes the new one for the old.
async fn listen(source: &Source) -> Result<PgListener, StoreError> {
    if source.origin.way.shares() == Some(true) {
        return Err(StoreError::refusing(
            "the way to the server leads by a pooler that keeps no session now; nobody can listen \
             there",
        ));
    }
    let set_up = source.origin.set_up();
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .max_lifetime(None)
        .idle_timeout(None)
        .test_before_acquire(false)
        .acquire_timeout(source.origin.connect_timeout)
        .after_connect(move |db, _| {
            let set_up = set_up.clone();
            Box::pin(async move { raw_sql(AssertSqlSafe(set_up)).execute(db).await.map(drop) })
        })
        .connect_lazy_with(source.origin.connect.clone());
    let listening = async {
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        listener.ignore_pool_close_event(true);
        listener.listen(&source.channel).await?;
        Ok(listener)
    };
    let limit = source.origin.connect_timeout + source.origin.response_timeout;
    let address = Address::of(&source.origin.connect);
    let doing = format!("connecting for wake-ups at {address}");
    within(limit, &doing, listening).await
}

/// Which of the keys could not be marked, their rows being locked.
async fn mark(
    listener: &mut PgListener,
    source: &Source,
    names: &[String],
) -> Result<Vec<bool>, StoreError> {
    let waited_for = i64::try_from(WAITED_FOR.as_micros()).unwrap_or(i64::MAX);
    let asking = query(source.wait.clone())
        .bind(names)
        .bind(waited_for)
        .fetch_all(&mut *listener);
    let limit = source.origin.response_timeout;
    let rows = within(limit, "asking for wake-ups", asking).await?;
    let mut late = vec![true; names.len()];
    for row in rows {
        let place = match row.try_get::<Option<i64>, _>("n").map_err(|_| odd())? {
            Some(n) => usize::try_from(n - 1).ok(),
            None => {
                let key: String = row.try_get("key").map_err(|_| odd())?;
                names.iter().position(|name| *name == key)
            }
        };
        *place
            .and_then(|place| late.get_mut(place))
            .ok_or_else(odd)? = false;
    }
    Ok(late)
}

/// None of what is asked for here changes anything that others rely on, so no
/// failure leaves an outcome unknown.
async fn within<T>(
    limit: Duration,
    doing: &str,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, StoreError> {
    match timeout(limit, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(classify(Phase::Unsent, doing, error)),
        Err(_) => Err(StoreError::unavailable(format!(
            "{doing}: no answer within {limit:?}; check that the server runs and can be reached \
             from here"
        ))),
    }
}

/// Until the next attempt: longer from failure to failure, and jittered, so
/// that the clients of a server that restarts do not come all at once.
struct Pause {
    until: Instant,
    next: Duration,
}

impl Pause {
    fn new() -> Self {
        Self {
            until: Instant::now(),
            next: FIRST_PAUSE,
        }
    }

    fn begin(&mut self) {
        let pause = self.next.mul_f64(rand::random_range(0.5..=1.0));
        self.until = Instant::now() + pause;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
    }
}
