//! The only renewal loop: one task per client renews, releases and cleans up
//! for all of its leases.
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

pub(crate) use jobs::attempt;

use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
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
    Abandon(Key, Owner),
    LoseAll,
    ReleaseAll,
    /// Answer once no handle is left and nothing is under way.
    WhenSettled(oneshot::Sender<()>),
}

/// The way to the loop. The loop starts with the first acquisition and ends
/// with the last handle.
#[derive(Debug)]
pub(crate) struct Keeper {
    parts: Arc<Parts>,
    commands: Mutex<Option<mpsc::UnboundedSender<Command>>>,
}

impl Keeper {
    pub(crate) fn new(parts: Arc<Parts>) -> Self {
        Self {
            parts,
            commands: Mutex::new(None),
        }
    }

    /// Makes sure that the loop runs; it starts again on the present runtime
    /// when the one it ran on has ended.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside of a runtime, also while the loop runs on
    /// one: whoever waits needs timers.
    pub(crate) fn ensure(&self) -> Result<(), Error> {
        Handle::try_current().map_err(|_| Error::NoRuntime)?;
        self.sender().map(drop)
    }

    fn sender(&self) -> Result<mpsc::UnboundedSender<Command>, Error> {
        let mut commands = self.commands.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(running) = commands.as_ref().filter(|c| !c.is_closed()) {
            return Ok(running.clone());
        }
        let runtime = Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        runtime.spawn(keeper::Loop::new(Arc::clone(&self.parts), receiver).run());
        *commands = Some(sender.clone());
        Ok(sender)
    }

    /// Keeps a lease from now on.
    pub(crate) fn keep(&self, held: &Arc<Held>) {
        // A loop that ended between the two steps is started once more.
        for _ in 0..2 {
            if let Ok(loop_) = self.sender()
                && loop_.send(Command::Keep(Arc::clone(held))).is_ok()
            {
                return;
            }
        }
        held.lose(LostReason::RuntimeGone);
    }

    /// Stops keeping a lease, without a release.
    pub(crate) fn forget(&self, held: &Arc<Held>) {
        held.give_up();
        self.send(Command::Forget(Arc::clone(held)));
    }

    /// Stops keeping a lease and releases it. `None` when no loop runs and
    /// none can be started: the key is free at its expiry.
    pub(crate) fn release(
        &self,
        held: &Arc<Held>,
    ) -> Option<oneshot::Receiver<Result<Released, Error>>> {
        let (reply, answer) = oneshot::channel();
        held.give_up();
        self.send(Command::Release(Arc::clone(held), reply))
            .then_some(answer)
    }

    /// Abandons an owner in the background.
    pub(crate) fn abandon(&self, key: Key, owner: Owner) {
        self.send(Command::Abandon(key, owner));
    }

    pub(crate) fn lose_all(&self) {
        self.send_if_running(Command::LoseAll);
    }

    pub(crate) fn release_all(&self) {
        self.send_if_running(Command::ReleaseAll);
    }

    /// Resolves once no handle is left and nothing is under way.
    pub(crate) async fn settled(&self) {
        let (reply, answer) = oneshot::channel();
        if self.send_if_running(Command::WhenSettled(reply)) {
            // A loop that ended has nothing under way either.
            let _ = answer.await;
        }
    }

    fn send(&self, command: Command) -> bool {
        self.sender().is_ok_and(|c| c.send(command).is_ok())
    }

    fn send_if_running(&self, command: Command) -> bool {
        let commands = self.commands.lock().unwrap_or_else(|e| e.into_inner());
        commands.as_ref().is_some_and(|c| c.send(command).is_ok())
    }
}
