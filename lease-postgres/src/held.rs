//! The connections of one runtime: opened as they are needed, then held. Nothing
//! is borrowed from a pool of the application's, and nothing is asked before a
//! connection is used.

mod taken;

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lease_core::StoreError;
use sqlx::SqlStr;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::connection::{Origin, Up};
use crate::errors::{self, Phase};
use crate::schema::Schema;
use taken::Slot;
pub(crate) use taken::Taken;

const FIRST_BACKOFF: Duration = Duration::from_millis(10);
const MOST_BACKOFF: Duration = Duration::from_secs(1);

/// The connections of one runtime: their sockets die with it.
#[derive(Debug)]
pub(crate) struct Held {
    origin: Origin,
    /// Looked at, and made if it is missing, before anything else is asked for.
    schema: Arc<Schema>,
    ready: AtomicBool,
    readying: tokio::sync::Mutex<()>,
    runtime: Handle,
    /// How many there may be.
    most: usize,
    /// Statements that a new connection prepares at once, so that no request
    /// needs a second round trip for it.
    prepared: Vec<SqlStr>,
    state: Mutex<State>,
    /// A connection came back, or there is room for another one.
    changed: Notify,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Origin")
    }
}

#[derive(Debug, Default)]
struct State {
    /// The one that was used last is used first.
    idle: Vec<Up>,
    /// Of any kind: in use, idle, being opened.
    open: usize,
    /// Connections that could not be opened, in a row.
    failures: u32,
    not_before: Option<Instant>,
    closed: bool,
}

impl Held {
    pub(crate) fn new(
        origin: Origin,
        schema: Arc<Schema>,
        runtime: Handle,
        most: usize,
        prepared: Vec<SqlStr>,
    ) -> Arc<Self> {
        Arc::new(Self {
            origin,
            schema,
            ready: AtomicBool::new(false),
            readying: tokio::sync::Mutex::new(()),
            runtime,
            most,
            prepared,
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// A connection, opened if none is idle. One that comes back before it is open
    /// does as well.
    ///
    /// # Cancel safety
    /// Safe: a connection that is being opened is there for whoever comes next.
    pub(crate) async fn take(self: &Arc<Self>) -> Result<Taken, StoreError> {
        let mut opening: Option<oneshot::Receiver<_>> = None;
        loop {
            // Before the look, so that nothing is missed between the two.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let room = {
                let mut state = self.state();
                if state.closed {
                    return Err(StoreError::unavailable(ENDED));
                }
                if let Some(up) = state.idle.pop() {
                    return Ok(Taken::new(self, up));
                }
                let room = opening.is_none() && state.open < self.most;
                state.open += usize::from(room);
                room.then_some(state.not_before)
            };
            if let Some(not_before) = room {
                let (tell, told) = oneshot::channel();
                // Not under the lock: a runtime that ends drops it here and now, and the
                // slot asks for the lock then.
                self.runtime.spawn(open(Slot::new(self), not_before, tell));
                opening = Some(told);
            }
            let Some(told) = &mut opening else {
                changed.await;
                continue;
            };
            tokio::select! {
                biased;
                opened = told => {
                    let opened = opened.unwrap_or_else(|_| Err(StoreError::unavailable(ENDED)));
                    // It may have failed just when another one came back.
                    let idle = || self.state().idle.pop().map(|up| Taken::new(self, up));
                    return opened.or_else(|error| idle().ok_or(error));
                }
                () = changed => {}
            }
        }
    }

    /// A connection once one is idle; opens none.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn idle(self: &Arc<Self>) -> Taken {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let idle = self.state().idle.pop();
            match idle {
                Some(up) => return Taken::new(self, up),
                None => changed.await,
            }
        }
    }

    /// Opens a connection that is ready for requests. Once more, where its session turns
    /// out not to be what it was found to be.
    async fn open(&self) -> Result<Up, StoreError> {
        let mut up = self.origin.open().await?;
        match self.make_ready(&mut up).await {
            Ok(()) => Ok(up),
            Err(Unready::Failed(error)) => Err(error),
            Err(Unready::Stale(_)) => {
                self.forget_way();
                let mut up = self.origin.open().await?;
                self.make_ready(&mut up).await?;
                Ok(up)
            }
        }
    }

    /// Sees to the tables, and prepares statements that need them.
    async fn make_ready(&self, up: &mut Up) -> Result<(), Unready> {
        for last in [false, true] {
            self.see_to_tables(up).await?;
            match up
                .prepare(&self.prepared, self.origin.response_timeout)
                .await
            {
                Ok(()) => return Ok(()),
                // Somebody dropped them since they were seen to.
                Err(error) if !last && error.as_ref().is_some_and(errors::tables_gone) => {
                    self.ready.store(false, Ordering::Relaxed);
                }
                Err(error) => {
                    let stale = error.as_ref().is_some_and(errors::stale);
                    let why = match stale {
                        true => Unready::Stale,
                        false => Unready::Failed,
                    };
                    return Err(why(unprepared(error)));
                }
            }
        }
        Ok(())
    }

    /// Looks at the tables, and makes them if they are missing, once.
    async fn see_to_tables(&self, up: &mut Up) -> Result<(), StoreError> {
        if self.ready.load(Ordering::Relaxed) {
            return Ok(());
        }
        let _one = self.readying.lock().await;
        if !self.ready.load(Ordering::Relaxed) {
            self.schema.ensure(up).await?;
            self.ready.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The tables are gone: the next connection sees to them.
    pub(crate) fn tables_are_gone(&self) {
        self.ready.store(false, Ordering::Relaxed);
        self.forget_idle();
    }

    /// Lets the idle ones go: the server they lead to is gone, or takes no
    /// changes any more.
    pub(crate) fn forget_idle(&self) {
        let gone = {
            let mut state = self.state();
            state.open -= state.idle.len();
            std::mem::take(&mut state.idle)
        };
        drop(gone);
        self.changed.notify_waiters();
    }

    /// A session was not what it was found to be.
    pub(crate) fn forget_way(&self) {
        self.origin.way.forget();
    }

    /// The runtime has ended.
    pub(crate) fn close(&self) {
        let gone = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.idle)
        };
        drop(gone);
        self.changed.notify_waiters();
    }

    fn give_back(&self, up: Up) {
        let closed = {
            let mut state = self.state();
            match state.closed {
                true => Some(up),
                false => {
                    state.idle.push(up);
                    None
                }
            }
        };
        drop(closed);
        self.changed.notify_one();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the state is being changed.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

const ENDED: &str = "the runtime ended while a request to Postgres was under way";

/// Opens a connection for whoever waits, or for the next one.
async fn open(
    slot: Slot,
    not_before: Option<Instant>,
    tell: oneshot::Sender<Result<Taken, StoreError>>,
) {
    if let Some(not_before) = not_before {
        tokio::time::sleep_until(not_before).await;
    }
    let held = Arc::clone(&slot.held);
    let outcome = match held.open().await {
        Ok(up) => {
            let mut state = held.state();
            state.failures = 0;
            state.not_before = None;
            drop(state);
            Ok(slot.fill(up))
        }
        Err(error) => {
            let mut state = held.state();
            state.failures = state.failures.saturating_add(1);
            state.not_before = Some(Instant::now() + backoff(state.failures));
            drop(state);
            drop(slot);
            Err(error)
        }
    };
    // What nobody waits for any more goes to the idle ones when it is dropped.
    let _ = tell.send(outcome);
}

/// Why a new connection is not ready.
enum Unready {
    /// Its session has others' statements, or loses its own.
    Stale(StoreError),
    Failed(StoreError),
}

impl From<StoreError> for Unready {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<Unready> for StoreError {
    fn from(unready: Unready) -> Self {
        match unready {
            Unready::Stale(error) | Unready::Failed(error) => error,
        }
    }
}

fn unprepared(error: Option<sqlx::Error>) -> StoreError {
    match error {
        Some(error) => errors::classify(Phase::Unsent, "preparing statements", error),
        None => StoreError::unavailable(
            "preparing statements: the server is silent; see whether it runs, and its log",
        ),
    }
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
    use crate::layout::LEASES;
    use crate::options::PostgresOptions;

    /// The runtime drops at once what it is given then, with the room that it has.
    #[test]
    fn a_connection_that_is_asked_for_while_its_runtime_ends_is_refused() {
        let runtime = || tokio::runtime::Runtime::new().unwrap();
        let options = PostgresOptions::from_url("postgres://nobody@127.0.0.1:1/none").unwrap();
        let schema = Schema::new(&LEASES, options.names.clone(), options.making);
        let ended = runtime();
        let handle = ended.handle().clone();
        let held = Held::new(options.origin(), Arc::new(schema), handle, 1, Vec::new());
        drop(ended);
        let (tell, told) = std::sync::mpsc::channel();
        // In a thread of its own: should it wait for ever, the test does not.
        std::thread::spawn(move || {
            let taken = runtime().block_on(held.take());
            tell.send((taken.is_err(), held.state().open))
        });
        let told = told.recv_timeout(Duration::from_secs(10));
        assert_eq!(told, Ok((true, 0)));
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        for failures in 1..100 {
            let pause = backoff(failures);
            assert!(pause >= FIRST_BACKOFF / 2 && pause <= MOST_BACKOFF);
        }
        assert!(backoff(u32::MAX) >= MOST_BACKOFF / 2);
    }
}
