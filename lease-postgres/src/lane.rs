//! Requests of many tasks over a few connections, gathered into batches.
//!
//! A lone request goes out at once, from its caller's own task. While requests
//! are under way, others gather, and one statement takes all of a kind: one plan,
//! one answer, and one flush to the disk for all of them. No request waits for
//! company: a batch holds what has come by the time the executor has nothing else
//! to do, or by the time an earlier batch is back.
//!
//! No statement waits for a row that somebody holds locked. It skips it, and the
//! request asks again after a short pause, until its time is over: whoever keeps
//! one row locked for long keeps no other key and no connection waiting.

pub(crate) mod again;
mod batch;

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard};

use lease_core::{AcquireOutcome, StoreError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::exchange::Exchange;
use crate::reply::{Replies, Reply};
use crate::request::{Kind, Request};
use crate::wire::Failure;
use again::Again;

/// The most requests in one statement.
const MOST_IN_BATCH: usize = 256;

/// None: ask again, nothing took effect.
type Answer = Result<Option<Reply>, StoreError>;

#[derive(Debug)]
struct Waiting {
    request: Request,
    /// In no batch with others: it, or one of them, made one fail.
    alone: bool,
    tell: oneshot::Sender<Answer>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Batches under way.
    under_way: usize,
    /// A task will take what waits.
    taker: bool,
    /// The last batch held more requests than there are connections, so the next
    /// may too.
    crowd: bool,
    /// The runtime has ended, and no task will take what waits.
    closed: bool,
}

/// Belongs to one runtime, as its connections do.
#[derive(Debug)]
pub(crate) struct Lane {
    exchange: Exchange,
    runtime: Handle,
    /// How many batches may be under way at once: one for each connection.
    width: usize,
    state: Mutex<State>,
    /// When tombstones were last looked through, in seconds after the beginning.
    purged: AtomicU64,
    beginning: Instant,
}

impl Lane {
    pub(crate) fn new(exchange: Exchange, runtime: Handle, width: usize) -> Arc<Self> {
        Arc::new(Self {
            exchange,
            runtime,
            width,
            state: Mutex::default(),
            purged: AtomicU64::new(0),
            beginning: Instant::now(),
        })
    }

    pub(crate) fn exchange(&self) -> &Exchange {
        &self.exchange
    }

    /// Sends one request, alone or with others, until it has an answer.
    ///
    /// # Cancel safety
    /// A request that still waits for its batch is not sent; one that was sent
    /// may or may not take effect. Others' requests are not harmed.
    pub(crate) async fn ask(self: &Arc<Self>, request: Request) -> Result<Reply, StoreError> {
        let mut again = Again::new(self.exchange.response_timeout());
        loop {
            if let Some(reply) = self.ask_once(request.clone()).await? {
                return Ok(reply);
            }
            // Whether that is a lock that stands, or one of many that come and go.
            if again.is_long_for(request.ttl())
                && let Some(holder) = self.exchange.kept(&request.key).await?
            {
                return Ok(Reply::Acquired(AcquireOutcome::Held(holder)));
            }
            again.pause(&request.key).await?;
        }
    }

    async fn ask_once(self: &Arc<Self>, request: Request) -> Answer {
        if let Some(turn) = self.lone_turn() {
            let batch = std::slice::from_ref(&request);
            let outcome = self.exchange.send(batch).await;
            drop(turn);
            return match outcome {
                Ok(replies) => {
                    self.follow_up(request.kind(), &replies);
                    replies.answers.into_iter().next().flatten().transpose()
                }
                Err(Failure::Raced(_)) => Ok(None),
                Err(failure) => Err(failure.into()),
            };
        }
        let (tell, answer) = oneshot::channel();
        let waiting = Waiting {
            request,
            alone: false,
            tell,
        };
        {
            let mut state = self.state();
            if state.closed {
                return Err(StoreError::unavailable(ENDED));
            }
            state.waiting.push_back(waiting);
            self.call_taker(&mut state);
        }
        answer
            .await
            .unwrap_or_else(|_| Err(StoreError::unknown_outcome(ENDED)))
    }

    /// The runtime has ended: nobody who waits here will get an answer.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
        self.exchange.held().close();
    }

    /// The right to send at once, if nobody else is there.
    fn lone_turn(self: &Arc<Self>) -> Option<Turn> {
        let mut state = self.state();
        let others = state.under_way >= self.width || state.crowd || !state.waiting.is_empty();
        if others || state.closed {
            return None;
        }
        state.under_way += 1;
        Some(Turn(Arc::clone(self)))
    }

    /// Sees to it that a task takes what waits, as soon as one may.
    fn call_taker(self: &Arc<Self>, state: &mut State) {
        if !state.waiting.is_empty() && !state.taker && state.under_way < self.width {
            state.taker = true;
            self.runtime.spawn(batch::take(Arc::clone(self)));
        }
    }

    /// What an answer leaves to do, for which nobody waits.
    fn follow_up(self: &Arc<Self>, kind: Kind, replies: &Replies) {
        let buries = matches!(kind, Kind::Abandon | Kind::Fence);
        if !buries {
            return;
        }
        let (freed, purge) = (replies.freed.clone(), self.is_time_to_purge());
        if purge || !freed.is_empty() {
            let lane = Arc::clone(self);
            self.runtime.spawn(again::follow_up(lane, freed, purge));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the state is being changed.
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

const ENDED: &str = "the runtime ended while a request to Postgres was under way";

/// One batch under way. Dropping it, whenever that is, lets the next one go.
#[derive(Debug)]
struct Turn(Arc<Lane>);

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.under_way -= 1;
        self.0.call_taker(&mut state);
    }
}
