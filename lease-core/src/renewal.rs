//! The only renewal loop: one task per client (and runtime) renews, releases
//! and cleans up for all of its leases.
//!
//! # How a renewal goes
//! It is due a third of the TTL after the send of the last confirmed request.
//! Those that are due together go out as one batch. An error is followed by
//! another attempt after a pause; an attempt that stays unanswered gets
//! another one beside it, and goes on: its reply may still count, **from its
//! own send**. Nothing but the store's word *lost* or the deadline ends a
//! lease; a panic in a backend is one more failed attempt.

mod entry;
mod jobs;
mod keeper;
mod pulse;

pub(crate) use jobs::attempt;

use std::sync::{Arc, Mutex};

use tokio::runtime::{self, Handle};
use tokio::sync::{mpsc, oneshot};

use crate::client::Parts;
use crate::error::Error;
use crate::key::Key;
use crate::lease::{Held, Released};
use crate::lost::LostReason;
use crate::owner::Owner;

/// What the loop is asked to do. One message per handle at a time, so the
/// number of leases bounds the queue.
#[derive(Debug)]
enum Command {
    Keep(Arc<Held>),
    Forget(Arc<Held>),
    Release(Arc<Held>, oneshot::Sender<Result<Released, Error>>),
    /// The store has said that its grant was released.
    Ended(Arc<Held>),
    Abandon(Key, Owner),
    LoseAll,
    ReleaseAll,
    /// Answer once no handle is left and nothing is under way.
    WhenSettled(oneshot::Sender<()>),
}

/// The way to the loops: one for each runtime that leases are acquired on, so
/// that a runtime's end harms no lease of another. A loop starts with its first
/// acquisition and ends with the client or its runtime.
#[derive(Debug)]
pub(crate) struct Keeper {
    parts: Arc<Parts>,
    loops: Mutex<Vec<(runtime::Id, Sender)>>,
}

type Sender = mpsc::UnboundedSender<Command>;

/// The loop that keeps one lease.
#[derive(Clone, Debug)]
pub(crate) struct Home(Sender);

impl Keeper {
    pub(crate) fn new(parts: Arc<Parts>) -> Self {
        Self {
            parts,
            loops: Mutex::new(Vec::new()),
        }
    }

    /// Makes sure that a loop runs on the present runtime.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside of one: whoever waits needs timers.
    pub(crate) fn ensure(&self) -> Result<(), Error> {
        Handle::try_current().map_err(|_| Error::NoRuntime)?;
        self.sender().map(drop)
    }

    /// The present runtime's loop; outside of a runtime any that runs.
    fn sender(&self) -> Result<Sender, Error> {
        let mut loops = self.loops.lock().unwrap_or_else(|e| e.into_inner());
        loops.retain(|(_, sender)| !sender.is_closed());
        let Ok(runtime) = Handle::try_current() else {
            let any = loops.first().map(|(_, sender)| sender.clone());
            return any.ok_or(Error::NoRuntime);
        };
        let id = runtime.id();
        if let Some((_, sender)) = loops.iter().find(|(of, _)| *of == id) {
            return Ok(sender.clone());
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        runtime.spawn(keeper::Loop::new(Arc::clone(&self.parts), receiver).run());
        loops.push((id, sender.clone()));
        Ok(sender)
    }

    /// Keeps a lease from now on, on the present runtime.
    pub(crate) fn keep(&self, held: &Arc<Held>) -> Option<Home> {
        // A loop that ended between the two steps is started once more.
        for _ in 0..2 {
            if let Ok(sender) = self.sender()
                && sender.send(Command::Keep(Arc::clone(held))).is_ok()
            {
                return Some(Home(sender));
            }
        }
        held.lose(LostReason::RuntimeGone);
        None
    }

    /// Stops keeping a lease, without a release.
    pub(crate) fn forget(&self, held: &Arc<Held>, home: Option<&Home>) {
        held.give_up();
        if let Some(Home(home)) = home {
            // A loop that has ended keeps nothing.
            let _ = home.send(Command::Forget(Arc::clone(held)));
        }
    }

    /// Stops keeping a lease and releases it, on its own runtime or, when that
    /// has ended, on the present one. `None` when there is neither: the key is
    /// free at its expiry.
    pub(crate) fn release(
        &self,
        held: &Arc<Held>,
        home: Option<&Home>,
    ) -> Option<oneshot::Receiver<Result<Released, Error>>> {
        let (reply, answer) = oneshot::channel();
        held.give_up();
        let mut command = Command::Release(Arc::clone(held), reply);
        if let Some(Home(home)) = home {
            match home.send(command) {
                Ok(()) => return Some(answer),
                Err(mpsc::error::SendError(back)) => command = back,
            }
        }
        self.send(command).then_some(answer)
    }

    /// Stops keeping a lease whose grant the store has ended, as its holder wanted.
    pub(crate) fn ended(&self, held: &Arc<Held>, home: Option<&Home>) {
        held.give_up();
        // Its loop tells of it, so that nothing that the loop tells comes later.
        let told = home.is_some_and(|Home(home)| {
            let command = Command::Ended(Arc::clone(held));
            home.send(command).is_ok()
        });
        if !told {
            jobs::ended(&self.parts, held);
        }
        if held.unanswered {
            self.abandon(held.key.clone(), held.owner);
        }
    }

    /// Abandons an owner in the background.
    pub(crate) fn abandon(&self, key: Key, owner: Owner) {
        self.send(Command::Abandon(key, owner));
    }

    pub(crate) fn lose_all(&self) {
        for sender in self.running() {
            let _ = sender.send(Command::LoseAll);
        }
    }

    pub(crate) fn release_all(&self) {
        for sender in self.running() {
            let _ = sender.send(Command::ReleaseAll);
        }
    }

    /// Resolves once no handle is left and nothing is under way.
    pub(crate) async fn settled(&self) {
        for sender in self.running() {
            let (reply, answer) = oneshot::channel();
            if sender.send(Command::WhenSettled(reply)).is_ok() {
                // A loop that ended has nothing under way either.
                let _ = answer.await;
            }
        }
    }

    fn send(&self, command: Command) -> bool {
        self.sender().is_ok_and(|c| c.send(command).is_ok())
    }

    fn running(&self) -> Vec<Sender> {
        let loops = self.loops.lock().unwrap_or_else(|e| e.into_inner());
        loops.iter().map(|(_, sender)| sender.clone()).collect()
    }
}
