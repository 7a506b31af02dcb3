//! Requests of many tasks over one connection, gathered into batches.
//!
//! A lone request goes out at once, from its caller's own task. While requests
//! are under way, others gather, and one call of the script takes them all:
//! that costs the server and us a fraction of a call for each. No request waits
//! for company: a batch holds what has come by the time the executor has
//! nothing else to do, or by the time an earlier batch is back.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use lease_core::StoreError;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::reply::{Reply, odd};
use crate::request::Request;
use crate::script::Sender;

/// The server does nothing else while a batch runs: some microseconds for each
/// request.
pub(crate) const MOST_IN_BATCH: usize = 256;

type Answer = Result<Reply, StoreError>;

#[derive(Debug)]
struct Waiting {
    request: Request,
    tell: oneshot::Sender<Answer>,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Waiting>,
    /// Batches under way.
    under_way: usize,
    /// A task will take what waits.
    taker: bool,
    /// The last batch held more than one request, so the next may too.
    crowd: bool,
    /// The runtime has ended, and no task will take what waits.
    closed: bool,
}

/// Belongs to one runtime, as its connection does.
#[derive(Debug)]
pub(crate) struct Lane {
    sender: Sender,
    runtime: Handle,
    /// How many batches may be under way at once.
    width: usize,
    state: Mutex<State>,
}

impl Lane {
    pub(crate) fn new(sender: Sender, runtime: Handle, width: usize) -> Arc<Self> {
        Arc::new(Self {
            sender,
            runtime,
            width,
            state: Mutex::new(State::default()),
        })
    }

    pub(crate) fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Sends one request, alone or with others.
    ///
    /// # Cancel safety
    /// A request that still waits for its batch is not sent; one that was sent
    /// may or may not take effect. Others' requests are not harmed.
    pub(crate) async fn ask(self: &Arc<Self>, request: Request) -> Answer {
        if let Some(turn) = self.lone_turn() {
            let answer = self.sender.send(std::slice::from_ref(&request)).await;
            drop(turn);
            return answer.and_then(|all| all.into_iter().next().unwrap_or_else(|| Err(odd())));
        }
        let (tell, answer) = oneshot::channel();
        {
            let mut state = self.state();
            if state.closed {
                return Err(StoreError::unavailable(ENDED));
            }
            state.waiting.push(Waiting { request, tell });
            self.call_taker(&mut state);
        }
        let patience = Patience {
            lane: self,
            over: true,
        };
        let answer = answer.await;
        patience.rewarded();
        answer.unwrap_or_else(|_| Err(StoreError::unknown_outcome(ENDED)))
    }

    /// The runtime has ended: nobody who waits here will get an answer.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(waiting);
    }

    /// The right to send at once, if nobody else is there.
    fn lone_turn(self: &Arc<Self>) -> Option<Turn> {
        let mut state = self.state();
        // A caller that nobody polls holds its turn for as long: there must be
        // others.
        let others = state.under_way > 0 || state.crowd || !state.waiting.is_empty();
        if others || self.width == 1 || state.closed {
            return None;
        }
        state.under_way += 1;
        Some(Turn(Arc::clone(self)))
    }

    /// Sees to it that a task takes what waits, as soon as one may.
    fn call_taker(self: &Arc<Self>, state: &mut State) {
        if !state.waiting.is_empty() && !state.taker && state.under_way < self.width {
            state.taker = true;
            self.runtime.spawn(take(Arc::clone(self)));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

const ENDED: &str = "the runtime ended while a request to Redis was under way";

/// Whoever leaves the queue after a while without a word from the server may
/// have waited behind a dead connection, with others who have more patience.
struct Patience<'a> {
    lane: &'a Lane,
    over: bool,
}

impl Patience<'_> {
    fn rewarded(mut self) {
        self.over = false;
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        if self.over {
            self.lane.sender.link().give_up_if_silent();
        }
    }
}

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

async fn take(lane: Arc<Lane>) {
    // Whoever is ready to run may have a request too.
    tokio::task::yield_now().await;
    let (turn, batch) = {
        let mut state = lane.state();
        state.taker = false;
        // Nobody waits for these any more: they need not be sent.
        state.waiting.retain(|one| !one.tell.is_closed());
        let count = state.waiting.len().min(MOST_IN_BATCH);
        let batch: Vec<_> = state.waiting.drain(..count).collect();
        state.crowd = count > 1;
        if count == 0 {
            return;
        }
        state.under_way += 1;
        let turn = Turn(Arc::clone(&lane));
        lane.call_taker(&mut state);
        (turn, batch)
    };
    let (requests, mut callers): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(|one| (one.request, Some(one.tell)))
        .unzip();
    let mut turn = Some(turn);
    let link = lane.sender.link();
    let mut retired = link.retirements();
    let mut sending = pin!(lane.sender.send(&requests));
    let answers = loop {
        tokio::select! {
            answers = &mut sending => break answers,
            left = somebody_leaves(&mut callers) => {
                if left == 0 {
                    return;
                }
                // Others may have more patience than there is time.
                link.give_up_if_silent();
            }
            // What comes next goes over another connection, and must not wait
            // for those who wait for this one.
            _ = retired.changed(), if turn.is_some() => turn = None,
        }
    };
    // First, so that whoever is woken finds the way free.
    drop(turn);
    match answers {
        Ok(answers) => {
            for (caller, answer) in callers.into_iter().zip(answers) {
                tell(caller, answer);
            }
        }
        Err(error) => {
            for caller in callers {
                tell(caller, Err(error.clone()));
            }
        }
    }
}

fn tell(caller: Option<oneshot::Sender<Answer>>, answer: Answer) {
    if let Some(caller) = caller {
        let _ = caller.send(answer);
    }
}

/// Waits until callers have left, and says how many have not.
async fn somebody_leaves(callers: &mut [Option<oneshot::Sender<Answer>>]) -> usize {
    poll_fn(|context| {
        let mut left = false;
        for caller in &mut *callers {
            if caller
                .as_mut()
                .is_some_and(|one| one.poll_closed(context).is_ready())
            {
                *caller = None;
                left = true;
            }
        }
        match left {
            true => Poll::Ready(callers.iter().flatten().count()),
            false => Poll::Pending,
        }
    })
    .await
}
