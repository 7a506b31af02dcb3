//! The log of a queue, and the machine that every client runs over it.
//!
//! JetStream gives the messages of a subject one order, the same for everybody. Each is a
//! batch of operations; each client that uses the queue applies all of them, in that
//! order, to a machine that is deterministic, and so answers its own operations when they
//! come by. Nobody reads and then writes. An operation is one round trip: it is
//! published, and comes by.
//!
//! Parts: `message` is the form of what is stored, `replica` is the machine with what
//! keeps the log's promises around it, `follow`, `consumer` and `reading` are the way out
//! of the log, `send` is the way into it, `waiting` is who waits for that, `snapshot` keeps
//! the replica for those who come later, `stream` makes the two streams, and `logs` are
//! those of one store.

mod consumer;
mod errors;
mod follow;
mod logs;
mod message;
mod reading;
mod replica;
mod send;
mod shared;
mod snapshot;
mod stream;
mod waiting;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lease_core::StoreError;
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

pub(super) use logs::Logs;
pub(super) use shared::most_bytes as room;
pub(super) use stream::ready as streams_ready;

use super::link::{Link, Stored, Which};
use message::Encoded;
use shared::{Phase, Shared};
use waiting::What;

/// Where and when a message took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    /// It rises from message to message, not by one.
    pub(super) revision: u64,
    /// By the clock of the server that stored it, in microseconds since the Unix epoch;
    /// never less than that of a message before: where that clock steps back, time goes
    /// on from where it was by what passes from message to message.
    pub(super) us: u64,
}

/// A part of a state: JSON, and raw bytes.
pub(super) type Piece = (Box<RawValue>, Vec<Bytes>);

/// What clients agree on: deterministic, whatever the operations. It reads no clock but
/// the messages', draws nothing, and panics never.
pub(super) trait Machine: Default + Send + 'static {
    /// What changes it.
    type Op: Send + 'static;
    /// What its sender is told.
    type Answer: Send + 'static;

    /// The operation as JSON, with raw bodies apart.
    fn encode(op: &Self::Op, bodies: &mut Vec<Bytes>) -> Result<Box<RawValue>, StoreError>;

    /// Takes as many bodies as `encode` gave. `None` for what it never wrote: the queue
    /// is refused from then on.
    fn decode(json: &RawValue, bodies: &mut dyn Iterator<Item = Bytes>) -> Option<Self::Op>;

    fn apply(&mut self, at: At, op: Self::Op) -> Self::Answer;

    /// The whole state, in parts of no more than some hundred kilobytes.
    fn save(&self) -> Result<Vec<Piece>, StoreError>;

    /// `None` for what it never saved.
    fn load(pieces: Vec<Piece>) -> Option<Self>;
}

/// The log of one queue, as one client follows it.
pub(super) struct Log<M: Machine> {
    shared: Arc<Shared<M>>,
    tasks: [JoinHandle<()>; 2],
}

impl<M: Machine> fmt::Debug for Log<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("subject", &self.shared.subject)
            .finish_non_exhaustive()
    }
}

impl<M: Machine> Drop for Log<M> {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        if let Some(writer) = self.shared.state().writer.take() {
            writer.abort();
        }
    }
}

impl<M: Machine> Log<M> {
    /// Begins to follow, in the background. Must be called within a runtime.
    fn start(link: Link, snaps: Link, subject: String, snap: String) -> Self {
        let shared = Arc::new(Shared::new(link, snaps, subject, snap));
        let tasks = [
            tokio::spawn(follow::follow(Arc::clone(&shared))),
            tokio::spawn(send::send(Arc::clone(&shared))),
        ];
        Self { shared, tasks }
    }

    /// Returns when the log was read to its end once.
    ///
    /// # Errors
    /// `Unavailable` if that took too long, `Refusing` if it cannot be read.
    pub(super) async fn ready(&self, deadline: Instant) -> Result<(), StoreError> {
        let mut phase = self.shared.phase.subscribe();
        let settled = phase.wait_for(|phase| !matches!(phase, Phase::Reading));
        match timeout_at(deadline, settled).await {
            Ok(Ok(phase)) => match &*phase {
                Phase::Broken(error) => Err(error.clone()),
                _ => Ok(()),
            },
            _ => Err(errors::not_read(self.shared.state().trouble.clone())),
        }
    }

    /// Sends one operation, and answers when it came by.
    ///
    /// # Errors
    /// `UnknownOutcome` if it may have had its effect, or may yet have it, once;
    /// any other if it certainly has none.
    ///
    /// # Cancel safety
    /// What was not sent yet is not sent; what was may have its effect.
    pub(super) async fn submit(
        &self,
        op: M::Op,
        deadline: Instant,
    ) -> Result<M::Answer, StoreError> {
        self.submit_if(None, op, deadline).await
    }

    /// As [`submit`](Self::submit), of what was decided by what was seen in this
    /// [`history`](Self::history). If it is another one by now, nothing is sent.
    ///
    /// # Errors
    /// As those of `submit`.
    ///
    /// # Cancel safety
    /// As of `submit`.
    pub(super) async fn submit_in(
        &self,
        history: u64,
        op: M::Op,
        deadline: Instant,
    ) -> Result<M::Answer, StoreError> {
        self.submit_if(Some(history), op, deadline).await
    }

    async fn submit_if(
        &self,
        history: Option<u64>,
        op: M::Op,
        deadline: Instant,
    ) -> Result<M::Answer, StoreError> {
        let op = Encoded::of::<M>(&op)?;
        let (bytes, most) = (op.bytes(), self.shared.most_bytes());
        if bytes > most {
            return Err(errors::too_large(bytes, most));
        }
        self.ready(deadline).await?;
        let (tell, told) = oneshot::channel();
        let what = What::Op(op, tell);
        self.wait(history, what, told, deadline).await
    }

    /// Looks at a state that holds everything that was acknowledged before this call.
    ///
    /// # Errors
    /// `Unavailable` or `Refusing` if there is none in time.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub(super) async fn read<R: Send>(
        &self,
        look: impl FnOnce(&M) -> R + Send,
        deadline: Instant,
    ) -> Result<R, StoreError> {
        self.ready(deadline).await?;
        if self.shared.link.replicated {
            // A server that leads no more may not know that yet, so that its last message
            // says nothing: one of our own does.
            let (tell, told) = oneshot::channel();
            let by = self.wait(None, What::Barrier(tell), told, deadline).await;
            by.map_err(|error| match error.is_unknown_outcome() {
                true => errors::not_read(Some(error)),
                false => error,
            })?;
        } else {
            self.until_the_last(deadline).await?;
        }
        Ok(self.peek(look))
    }

    /// Waits until what is the last message now was applied.
    async fn until_the_last(&self, deadline: Instant) -> Result<(), StoreError> {
        let shared = &self.shared;
        shared.state().used = Instant::now();
        let mut changed = shared.changed.subscribe();
        let (before, stamp) = shared.last();
        let before = before.revision;
        let history = self.history();
        let last = shared
            .link
            .read(&shared.subject, Which::Last, deadline)
            .await?;
        let is_other = |stored: &Stored| stored.revision == before && stored.us() != stamp;
        let is_other = last.as_ref().is_some_and(is_other);
        let last = last.map_or(0, |stored| stored.revision);
        if before > last || is_other {
            // What was applied is not there: the log says what is.
            shared.doubt();
            let anew = changed.wait_for(|_| self.history() != history);
            let anew = timeout_at(deadline, anew).await;
            anew.map_err(|_| errors::not_read(shared.state().trouble.clone()))?
                .map_err(|_| errors::not_read(None))?;
            return self.ready(deadline).await;
        }
        loop {
            let soon = deadline.min(Instant::now() + send::SOON);
            let by = timeout_at(soon, changed.wait_for(|seen| *seen >= last)).await;
            if by.is_ok() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(errors::not_read(shared.state().trouble.clone()));
            }
            shared.hurry();
        }
    }

    async fn wait<T>(
        &self,
        history: Option<u64>,
        what: What<M::Answer>,
        told: oneshot::Receiver<Result<T, StoreError>>,
        deadline: Instant,
    ) -> Result<T, StoreError> {
        let number = {
            let mut state = self.shared.state();
            if history.is_some_and(|history| history != state.history) {
                return Err(errors::not_sent_anew());
            }
            state.enqueue(what)
        };
        self.shared.work.notify_one();
        if let Phase::Broken(error) = &*self.shared.phase.borrow() {
            self.shared.state().withdraw(number);
            return Err(error.clone());
        }
        match timeout_at(deadline, told).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(errors::ended()),
            Err(_) => {
                let mut state = self.shared.state();
                let trouble = state.trouble.clone();
                match state.withdraw(number) {
                    true => Err(errors::not_sent(trouble)),
                    false => Err(errors::not_seen(trouble)),
                }
            }
        }
    }

    /// Looks at the state as far as it was seen, without a request.
    pub(super) fn peek<R>(&self, look: impl FnOnce(&M) -> R) -> R {
        let state = self.shared.state();
        look(&state.replica.machine)
    }

    /// Which history of the log the state is of: another one once the end of the log was
    /// lost, and the state made anew. Revisions of one mean nothing in another.
    pub(super) fn history(&self) -> u64 {
        self.shared.state().history
    }

    /// Notes that somebody uses it.
    fn touch(&self) {
        self.shared.state().used = Instant::now();
    }

    /// For how long nobody has used it.
    fn unused(&self) -> Duration {
        self.shared.state().used.elapsed()
    }

    /// Changes at each message that is applied, and when the state was made anew.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }
}
