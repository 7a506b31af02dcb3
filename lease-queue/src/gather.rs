//! Requests of many tasks for one queue, gathered into batches.
//!
//! A lone request goes out at once, from its caller's own task. While requests are under
//! way, others gather, and one request to the server takes them all. None waits for
//! company: a batch holds what has come by the time the executor has nothing else to do,
//! or by the time an earlier batch is back.
//!
//! Each keeps an owner and an outcome of its own. What fails as a whole fails each of a
//! batch alike: what was certainly not sent is unavailable to each, and what may have
//! taken effect is unknown to each.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use async_trait::async_trait;
use lease_core::{StoreError, StoreErrorKind};
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use crate::keyed::unanswered;
use crate::name::QueueName;

/// The most requests in a batch: each may answer with a large payload, for which all
/// the others wait. Where that takes longer than they do, batches get smaller.
const MOST: usize = 64;

/// Whoever sends batches.
#[async_trait]
pub(crate) trait Sends: Clone + Send + Sync + 'static {
    type Request: Send + Sync + 'static;
    type Answer: Send + 'static;

    /// Whether the two may share a batch.
    fn go_together(one: &Self::Request, other: &Self::Request) -> bool;

    /// One outcome for each, in order.
    async fn send(
        &self,
        queue: &QueueName,
        requests: &[Self::Request],
    ) -> Vec<Result<Self::Answer, StoreError>>;
}

/// A crowd is not parted into fewer than these: calls have a price of their own.
const LEAST: usize = 8;

type Outcome<S> = Result<<S as Sends>::Answer, StoreError>;

struct Waiting<S: Sends> {
    request: S::Request,
    tell: oneshot::Sender<Outcome<S>>,
}

/// What there is of one queue, on one runtime: a batch goes over the runtime's own
/// connections.
struct Line<S: Sends> {
    waiting: VecDeque<Waiting<S>>,
    /// Requests and batches under way.
    under_way: usize,
    /// The requests of all of them.
    sent: usize,
    /// A task will take what waits.
    taker: bool,
    /// The last batch held more requests than go alone, so the next may too.
    crowd: bool,
    /// The most requests in the next batch.
    most: usize,
}

impl<S: Sends> Default for Line<S> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            under_way: 0,
            sent: 0,
            taker: false,
            crowd: false,
            most: MOST,
        }
    }
}

impl<S: Sends> Line<S> {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0 && !self.taker
    }

    /// Those who still wait, of a kind with the first, in the order in which they came:
    /// not more than one of so many parts of all that there is.
    fn batch(&mut self, parts: usize) -> Vec<Waiting<S>> {
        // Nobody waits for these any more: they need not be sent.
        self.waiting.retain(|one| !one.tell.is_closed());
        let all = self.waiting.len() + self.sent;
        let most = self.most.min(all.div_ceil(parts).max(LEAST));
        let mut batch: Vec<Waiting<S>> = Vec::new();
        let mut left = VecDeque::new();
        for one in self.waiting.drain(..) {
            let fits = batch.first().is_none_or(|first| {
                batch.len() < most && S::go_together(&first.request, &one.request)
            });
            match fits {
                true => batch.push(one),
                false => left.push_back(one),
            }
        }
        self.waiting = left;
        batch
    }
}

type Place = (runtime::Id, QueueName);
type Lines<S> = HashMap<Place, Line<S>>;

/// So many idle lines are kept.
const IDLE_LINES: usize = 64;

/// Gathers what goes to one server.
pub(crate) struct Gather<S: Sends> {
    /// How many may be under way at once, of one queue.
    width: usize,
    /// So many are sent alone before others gather.
    alone: usize,
    /// A batch holds at most one of so many parts of all requests, waiting or sent.
    parts: usize,
    lines: Mutex<Lines<S>>,
}

impl<S: Sends> Gather<S> {
    pub(crate) fn new(width: usize, alone: usize) -> Arc<Self> {
        Self::in_parts(width, alone, 1)
    }

    /// As [`new`](Self::new), with a crowd's requests in so many batches at least.
    pub(crate) fn in_parts(width: usize, alone: usize, parts: usize) -> Arc<Self> {
        Arc::new(Self {
            parts: parts.max(1),
            width,
            // A caller that nobody polls keeps its turn for as long: one is for others.
            alone: alone.min(width.saturating_sub(1)),
            lines: Mutex::default(),
        })
    }

    /// Sends one request, alone or with others.
    ///
    /// # Cancel safety
    /// A request that still waits for its batch is not sent; one that was sent may or
    /// may not take effect. Others' requests are not harmed.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        sender: &S,
        queue: &QueueName,
        request: S::Request,
    ) -> Outcome<S> {
        let runtime = Handle::try_current().map_err(|error| {
            let words = "a store of queues needs a tokio runtime; call it from within one";
            StoreError::with_source(StoreErrorKind::InvalidInput, words, error)
        })?;
        let (place, gather) = ((runtime.id(), queue.clone()), self);
        // Most of those who wait need none of their own.
        let way = |place| Way {
            gather: Arc::clone(gather),
            sender: sender.clone(),
            place,
            runtime,
        };
        match self.join(place, way, request) {
            Joined::Alone(turn, request) => {
                let answers = sender.send(queue, std::slice::from_ref(&request)).await;
                drop(turn);
                answers
                    .into_iter()
                    .next()
                    .unwrap_or_else(|| Err(unanswered()))
            }
            Joined::Others(answer) => answer
                .await
                .unwrap_or_else(|_| Err(StoreError::unknown_outcome(ENDED))),
        }
    }

    fn join(
        &self,
        place: Place,
        way: impl FnOnce(Place) -> Way<S>,
        request: S::Request,
    ) -> Joined<S> {
        let mut lines = self.lines();
        if lines.len() >= IDLE_LINES {
            lines.retain(|_, line| !line.is_idle());
        }
        let line = lines.entry(place.clone()).or_default();
        let others = line.under_way >= self.alone || line.crowd || !line.waiting.is_empty();
        if !others {
            line.under_way += 1;
            line.sent += 1;
            drop(lines);
            return Joined::Alone(Turn(Some(way(place)), 1), request);
        }
        let (tell, answer) = oneshot::channel();
        line.waiting.push_back(Waiting { request, tell });
        let taken = self.is_to_be_taken(line);
        drop(lines);
        if taken {
            way(place).spawn();
        }
        Joined::Others(answer)
    }

    /// Whether a task is to be spawned that takes what waits: not while the lines are
    /// locked, since a runtime that ends drops it at once.
    fn is_to_be_taken(&self, line: &mut Line<S>) -> bool {
        let takes = !line.waiting.is_empty() && !line.taker && line.under_way < self.width;
        line.taker |= takes;
        takes
    }

    fn lines(&self) -> MutexGuard<'_, Lines<S>> {
        // Nothing panics while they are being changed.
        self.lines.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// How a request goes out.
enum Joined<S: Sends> {
    Alone(Turn<S>, S::Request),
    Others(oneshot::Receiver<Outcome<S>>),
}

const ENDED: &str = "the runtime ended while a request of a queue was under way";

/// Where a batch goes, and by whom.
struct Way<S: Sends> {
    gather: Arc<Gather<S>>,
    sender: S,
    place: Place,
    runtime: Handle,
}

impl<S: Sends> Way<S> {
    fn spawn(self) {
        let runtime = self.runtime.clone();
        runtime.spawn(take(Taker(Some(self))));
    }
}

/// The task that takes what waits. If it never runs its runtime has ended, and so have
/// those who wait.
struct Taker<S: Sends>(Option<Way<S>>);

impl<S: Sends> Drop for Taker<S> {
    fn drop(&mut self) {
        let Some(way) = self.0.take() else { return };
        let waiting = {
            let mut lines = way.gather.lines();
            let Some(line) = lines.get_mut(&way.place) else {
                return;
            };
            line.taker = false;
            std::mem::take(&mut line.waiting)
        };
        for one in waiting {
            let _ = one.tell.send(Err(StoreError::unavailable(ENDED)));
        }
    }
}

/// One batch under way, of so many requests. Dropping it, whenever that is, lets the next
/// one go.
struct Turn<S: Sends>(Option<Way<S>>, usize);

impl<S: Sends> Drop for Turn<S> {
    fn drop(&mut self) {
        let Some(way) = self.0.take() else { return };
        let taken = {
            let mut lines = way.gather.lines();
            let Some(line) = lines.get_mut(&way.place) else {
                return;
            };
            line.under_way -= 1;
            line.sent -= self.1;
            way.gather.is_to_be_taken(line)
        };
        if taken {
            way.spawn();
        }
    }
}

impl<S: Sends> Turn<S> {
    /// What came of so many requests: if nobody knows, the next are to be fewer, or all
    /// might fail again by being too many.
    fn came_back(&self, requests: usize, known: bool) {
        let Some(way) = &self.0 else { return };
        if let Some(line) = way.gather.lines().get_mut(&way.place) {
            line.most = match (known, requests) {
                (true, _) => (line.most * 2).min(MOST),
                (false, 0 | 1) => line.most,
                (false, _) => line.most.min(requests / 2),
            };
        }
    }
}

async fn take<S: Sends>(mut taker: Taker<S>) {
    // Whoever is ready to run may have a request too.
    tokio::task::yield_now().await;
    let Some(way) = taker.0.take() else { return };
    let (batch, more) = {
        let mut lines = way.gather.lines();
        let Some(line) = lines.get_mut(&way.place) else {
            return;
        };
        line.taker = false;
        let batch = line.batch(way.gather.parts);
        line.crowd = batch.len() > way.gather.alone;
        if batch.is_empty() {
            return;
        }
        line.under_way += 1;
        line.sent += batch.len();
        (batch, way.gather.is_to_be_taken(line))
    };
    let (sender, queue) = (way.sender.clone(), way.place.1.clone());
    if more {
        let next = Way {
            gather: Arc::clone(&way.gather),
            sender: way.sender.clone(),
            place: way.place.clone(),
            runtime: way.runtime.clone(),
        };
        next.spawn();
    }
    let turn = Turn(Some(way), batch.len());
    let (requests, mut callers): (Vec<S::Request>, Vec<_>) =
        batch.into_iter().map(|one| (one.request, one.tell)).unzip();
    let answers = {
        let mut sending = pin!(sender.send(&queue, &requests));
        tokio::select! {
            biased;
            answers = &mut sending => answers,
            // As if each had dropped a request of its own.
            () = all_leave(&mut callers) => {
                turn.came_back(requests.len(), false);
                return;
            }
        }
    };
    turn.came_back(requests.len(), answers.iter().any(is_known));
    // First, so that whoever is woken finds the way free.
    drop(turn);
    let mut answers = answers.into_iter();
    for caller in callers {
        let _ = caller.send(answers.next().unwrap_or_else(|| Err(unanswered())));
    }
}

fn is_known<A>(answer: &Result<A, StoreError>) -> bool {
    !matches!(answer, Err(error) if error.is_unknown_outcome())
}

async fn all_leave<A>(callers: &mut [oneshot::Sender<A>]) {
    poll_fn(|context| {
        let mut callers = callers.iter_mut();
        match callers.all(|caller| caller.poll_closed(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

#[cfg(test)]
mod tests;
