//! One connection, opened when it is needed and opened anew when it fails.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lease_core::StoreError;
use redis::{AsyncConnectionConfig, RedisError, RedisResult};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::errors::{self, Phase};
use crate::sentinel::Stay;
use crate::servers::Servers;
use crate::wire::{Foreign, Wire};

/// When somebody gives a request up and an answer has been due for this long,
/// the connection may be dead. Shorter waits are somebody's change of mind.
const SILENCE: Duration = Duration::from_millis(50);

/// And after this many of the connection's own round trips.
const SILENT_ROUND_TRIPS: u32 = 4;

/// A connection that failed younger than this counts as a failure to connect,
/// so that one which is always cut at once is not reopened in a hurry.
const YOUNG: Duration = Duration::from_secs(1);

const FIRST_BACKOFF: Duration = Duration::from_millis(10);
const MOST_BACKOFF: Duration = Duration::from_secs(1);

/// A try to connect that takes longer gets another one beside it; the next
/// follow after twice as long each.
const FIRST_PATIENCE: Duration = Duration::from_millis(300);

/// A connection, and until when to use it, if that may end.
type Opened = (Wire, Option<Stay>);

/// Where connections come from.
#[derive(Clone)]
pub(crate) enum Origin {
    Servers {
        servers: Servers,
        connect_timeout: Duration,
        response_timeout: Duration,
    },
    /// The caller's own; it reconnects itself, or does not.
    Foreign(Arc<dyn Foreign>),
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Servers { .. } => "Servers",
            Self::Foreign(_) => "Foreign",
        })
    }
}

/// Belongs to one runtime: the connection's task dies with it.
#[derive(Debug)]
pub(crate) struct Link {
    us: Weak<Link>,
    origin: Origin,
    /// How much longer than a round trip an answer may rightly take.
    slack: Duration,
    state: Mutex<State>,
    /// Counts the connections that were let go.
    retired: watch::Sender<u64>,
}

#[derive(Debug)]
enum State {
    Down { failures: u32 },
    Connecting(watch::Receiver<Option<Result<Up, StoreError>>>),
    Up(Up),
}

/// A connection that stood when we last looked.
#[derive(Clone, Debug)]
pub(crate) struct Up {
    pub(crate) wire: Wire,
    since: Instant,
    /// Failures in a row before it stood.
    failures: u32,
    /// Until when it is to be used, if that may end.
    stay: Option<Stay>,
    seen: Arc<Seen>,
}

/// What a connection shows of itself, in microseconds.
#[derive(Debug)]
struct Seen {
    /// Since when an answer is due, after it stood; [`NOTHING`] if none is.
    due: AtomicU64,
    /// Requests without an answer.
    open: AtomicU64,
    /// The longest round trip of late; at first, how long it took to connect.
    round_trip: AtomicU64,
}

const NOTHING: u64 = u64::MAX;

impl Up {
    fn new(wire: Wire, stay: Option<Stay>, failures: u32, took: Duration) -> Self {
        Self {
            wire,
            since: Instant::now(),
            failures,
            stay,
            seen: Arc::new(Seen {
                due: AtomicU64::new(NOTHING),
                open: AtomicU64::new(0),
                round_trip: AtomicU64::new(micros(took)),
            }),
        }
    }

    /// Another server is to be used by now.
    fn is_over(&self) -> bool {
        self.stay.as_ref().is_some_and(Stay::is_over)
    }

    /// Whether this may be a server that is demoted.
    pub(crate) fn may_end(&self) -> bool {
        self.stay.is_some()
    }

    /// The answer to what was asked here, unless another server is to be used
    /// before it is there: what this one says then does not count, and is as lost
    /// as if the connection were.
    pub(crate) async fn while_here<T>(
        &self,
        answer: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        let Some(stay) = &self.stay else {
            return answer.await;
        };
        tokio::select! {
            biased;
            () = stay.over() => Err(RedisError::from(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                format!("the sentinels name another primary than {} by now", stay.here()),
            ))),
            answer = answer => answer,
        }
    }

    fn asked(&self) {
        self.seen.open.fetch_add(1, Ordering::Relaxed);
        self.seen.due.fetch_min(self.age(), Ordering::Relaxed);
    }

    /// Nobody waits for this answer any more.
    fn closed(&self) {
        if self.seen.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.seen.due.store(NOTHING, Ordering::Relaxed);
        }
    }

    fn answered(&self, sent: Instant) {
        // Whatever else is due is due from now on: the server has spoken.
        self.seen.due.store(self.age(), Ordering::Relaxed);
        let this = micros(sent.elapsed());
        let known = self.seen.round_trip.load(Ordering::Relaxed);
        // What is long counts at once, and is forgotten slowly.
        let longest = this.max(known - known / 8);
        self.seen.round_trip.store(longest, Ordering::Relaxed);
    }

    /// Whether it has been silent for too long, an answer being due.
    fn is_silent(&self, slack: Duration) -> bool {
        let due = self.seen.due.load(Ordering::Relaxed);
        if due == NOTHING {
            return false;
        }
        self.age().saturating_sub(due) >= micros(self.right(slack))
    }

    /// How long an answer may rightly take.
    fn right(&self, slack: Duration) -> Duration {
        let round_trip = Duration::from_micros(self.seen.round_trip.load(Ordering::Relaxed));
        SILENCE.max(round_trip.saturating_mul(SILENT_ROUND_TRIPS)) + slack
    }

    /// How long ago it stood.
    fn age(&self) -> u64 {
        micros(self.since.elapsed())
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.seen, &other.seen)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Link {
    /// An answer may rightly take `slack` longer than a round trip.
    pub(crate) fn new(origin: Origin, slack: Duration) -> Arc<Self> {
        Arc::new_cyclic(|us| Self {
            us: Weak::clone(us),
            origin,
            slack,
            state: Mutex::new(State::Down { failures: 0 }),
            retired: watch::Sender::new(0),
        })
    }

    /// Changes when a connection is let go.
    pub(crate) fn retirements(&self) -> watch::Receiver<u64> {
        self.retired.subscribe()
    }

    /// The connection, opened if there is none. Callers share one attempt, and
    /// after failures an attempt begins with a pause. One to a server that is not
    /// to be used any more is let go.
    ///
    /// # Cancel safety
    /// Safe: the attempt goes on for whoever comes next.
    pub(crate) async fn connection(&self) -> Result<Up, StoreError> {
        let mut attempt = {
            let mut state = self.state();
            if matches!(&*state, State::Up(up) if up.is_over()) {
                *state = State::Down { failures: 0 };
                self.retired.send_modify(|count| *count += 1);
            }
            match &*state {
                State::Up(up) => return Ok(up.clone()),
                State::Connecting(attempt) => attempt.clone(),
                State::Down { failures } => {
                    let failures = *failures;
                    if let Origin::Foreign(connection) = &self.origin {
                        let up = Up::new(
                            Wire::Foreign(Arc::clone(connection)),
                            None,
                            0,
                            Duration::ZERO,
                        );
                        *state = State::Up(up.clone());
                        return Ok(up);
                    }
                    let (tell, attempt) = watch::channel(None);
                    *state = State::Connecting(attempt.clone());
                    tokio::spawn(connect(
                        Weak::clone(&self.us),
                        self.origin.clone(),
                        failures,
                        tell,
                    ));
                    attempt
                }
            }
        };
        let outcome = attempt.wait_for(Option::is_some).await;
        let outcome = outcome.ok().and_then(|told| told.clone());
        match outcome {
            Some(result) => result,
            None => {
                // Its task was dropped, with the runtime.
                let mut state = self.state();
                if matches!(&*state, State::Connecting(now) if now.same_channel(&attempt)) {
                    *state = State::Down { failures: 0 };
                }
                Err(StoreError::unavailable(
                    "the runtime ended while it was connecting to Redis; try again",
                ))
            }
        }
    }

    /// Lets a connection go that failed.
    pub(crate) fn retire(&self, failed: &Up) {
        let failures = if failed.since.elapsed() < YOUNG {
            failed.failures.saturating_add(1)
        } else {
            0
        };
        self.let_go(failed, failures);
    }

    fn let_go(&self, which: &Up, failures: u32) {
        {
            let mut state = self.state();
            match &*state {
                State::Up(up) if up.is(which) => *state = State::Down { failures },
                _ => return,
            }
        }
        self.retired.send_modify(|count| *count += 1);
    }

    /// Lets the connection go if it has been silent for too long: for who leaves
    /// without an answer.
    pub(crate) fn give_up_if_silent(&self) {
        let up = match &*self.state() {
            State::Up(up) => up.clone(),
            _ => return,
        };
        if up.is_silent(self.slack) {
            // That says nothing against the next.
            self.let_go(&up, 0);
        }
    }

    /// How long an answer may rightly take, by the connection's own round trips.
    pub(crate) fn patience(&self) -> Duration {
        match &*self.state() {
            State::Up(up) => up.right(self.slack),
            _ => SILENCE,
        }
    }

    /// Says that a request is under way, until the result is dropped.
    pub(crate) fn ask<'a>(&'a self, up: &'a Up) -> Asking<'a> {
        up.asked();
        Asking {
            link: self,
            up,
            sent: Instant::now(),
            answered: false,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A request under way.
///
/// Dropped without an answer after a while, it takes a silent connection with
/// it: the path to the server may swallow everything, and nothing else would
/// notice before TCP gives up, long after the leases are gone.
#[derive(Debug)]
pub(crate) struct Asking<'a> {
    link: &'a Link,
    up: &'a Up,
    sent: Instant,
    answered: bool,
}

impl Asking<'_> {
    /// The server answered.
    pub(crate) fn answered(mut self) {
        self.answered = true;
        // Of a WAIT, what went beyond its own time.
        self.up.answered(self.sent + self.link.slack);
    }

    /// The connection failed.
    pub(crate) fn failed(mut self) {
        self.answered = true;
        self.link.retire(self.up);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.answered && self.up.is_silent(self.link.slack) {
            self.link.let_go(self.up, 0);
        }
        self.up.closed();
    }
}

async fn connect(
    link: Weak<Link>,
    origin: Origin,
    failures: u32,
    tell: watch::Sender<Option<Result<Up, StoreError>>>,
) {
    if failures > 0 {
        tokio::time::sleep(backoff(failures)).await;
    }
    let begun = Instant::now();
    let result = match &origin {
        Origin::Servers {
            servers,
            connect_timeout,
            response_timeout,
        } => open(servers, *connect_timeout, *response_timeout).await,
        Origin::Foreign(connection) => Ok((Wire::Foreign(Arc::clone(connection)), None)),
    };
    let Some(link) = link.upgrade() else {
        return;
    };
    let (outcome, state) = match result {
        Ok((wire, stay)) => {
            let up = Up::new(wire, stay, failures, begun.elapsed());
            (Ok(up.clone()), State::Up(up))
        }
        Err(error) => {
            let failures = failures.saturating_add(1);
            (Err(error), State::Down { failures })
        }
    };
    *link.state() = state;
    // Nobody may be waiting any more.
    let _ = tell.send(Some(outcome));
}

/// Opens a connection. When that takes long, it begins again beside the first
/// try, and takes what comes first: the first may have been sent into a network
/// that swallowed it, and has come back.
async fn open(
    servers: &Servers,
    connect_timeout: Duration,
    response_timeout: Duration,
) -> Result<Opened, StoreError> {
    let end = Instant::now() + connect_timeout;
    let try_it = || {
        let left = end.saturating_duration_since(Instant::now());
        open_once(servers, left, response_timeout)
    };
    let mut tries = FuturesUnordered::from_iter([try_it()]);
    let mut pause = FIRST_PATIENCE;
    loop {
        tokio::select! {
            outcome = tries.next() => match outcome {
                Some(Err(error)) if tries.is_empty() => return Err(error),
                Some(Err(_)) | None => {}
                Some(Ok(opened)) => return Ok(opened),
            },
            () = tokio::time::sleep(pause) => {
                pause *= 2;
                if Instant::now() + pause < end {
                    tries.push(try_it());
                }
            }
        }
    }
}

async fn open_once(
    servers: &Servers,
    connect_timeout: Duration,
    response_timeout: Duration,
) -> Result<Opened, StoreError> {
    let end = Instant::now() + connect_timeout;
    let (client, stay) = servers.now(connect_timeout).await?;
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(response_timeout));
    let left = end.saturating_duration_since(Instant::now());
    let connection = client.connect(left, config).await.map_err(|error| {
        let doing = match &stay {
            None => "cannot connect to Redis".to_owned(),
            Some(stay) => format!(
                "cannot connect to the primary {} that the sentinels name",
                stay.here()
            ),
        };
        errors::classify(Phase::Unsent, &doing, error)
    })?;
    if let Some(stay) = &stay {
        stay.check(&connection, end).await?;
    }
    Ok((Wire::Ours(connection), stay))
}

fn backoff(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(10);
    let most = FIRST_BACKOFF
        .saturating_mul(1 << doublings)
        .min(MOST_BACKOFF);
    most.mul_f64(rand::random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit() {
        for failures in 1..100 {
            let pause = backoff(failures);
            assert!(
                pause >= FIRST_BACKOFF / 2 && pause <= MOST_BACKOFF,
                "{pause:?}"
            );
        }
        assert!(backoff(u32::MAX) >= MOST_BACKOFF / 2);
    }
}
