//! What those who wait hear with: one subscription, made beside their looks.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::error::StoreError;
use crate::retry::ATTEMPT_LIMIT;

type Hints = BoxStream<'static, ()>;

/// A subscription to a store's hints, for those who wait in turn: it goes from one to
/// the next. [`Leases`](crate::Leases) wait with it, and whoever waits in another way can
/// do so too, as the workers of a queue do.
///
/// It is made in a task of its own. So a store that takes its time, or never answers,
/// keeps nobody from looking meanwhile, and no look cuts it short.
#[derive(Default)]
pub struct Subscription {
    state: State,
    /// Where it was asked for: it may live by that runtime.
    runtime: Option<runtime::Id>,
}

#[derive(Default)]
enum State {
    #[default]
    None,
    /// Dropping this ends the task.
    UnderWay(oneshot::Receiver<Result<Hints, StoreError>>),
    Stands(Hints),
    /// Nobody has been told yet, or has done anything about it.
    Ended,
}

impl Subscription {
    /// Takes it over from whoever waited before, maybe on a runtime that has ended or
    /// that nobody drives.
    pub fn take_over(&mut self) {
        if self.runtime != this_runtime() {
            *self = Self::default();
        }
    }

    /// Whether there is one to be heard: it stands, or has ended and that was not yet
    /// [dealt with](Self::end).
    #[must_use]
    pub fn stands(&self) -> bool {
        matches!(self.state, State::Stands(_) | State::Ended)
    }

    /// Waits until there is one: `watch` asks for it, unless that is under way or done.
    /// A store that has not answered in ten seconds has failed.
    ///
    /// What happened before it stood gave no hint: look once more before sleeping.
    ///
    /// # Errors
    /// Of `watch`, if it panics, too; unavailable outside of a tokio runtime and at the
    /// end of the one where it was asked for. The next call asks anew.
    ///
    /// # Cancel safety
    /// Safe: what was asked for goes on, until this is dropped.
    pub async fn made<F>(
        &mut self,
        clock: &Arc<dyn Clock>,
        watch: impl FnOnce() -> F,
    ) -> Result<(), StoreError>
    where
        F: Future<Output = Result<Hints, StoreError>> + Send + 'static,
    {
        if matches!(self.state, State::None) {
            let runtime = Handle::try_current().map_err(|_| gone())?;
            self.runtime = Some(runtime.id());
            self.state = State::UnderWay(ask(&runtime, Arc::clone(clock), watch()));
        }
        if let State::UnderWay(answer) = &mut self.state {
            let made = answer.await.unwrap_or_else(|_| Err(gone()));
            self.state = State::None;
            self.state = State::Stands(made?);
        }
        Ok(())
    }

    /// The next hint. None when it has ended, again and again until that is
    /// [dealt with](Self::end); its panic is its end. Waits for ever while none stands.
    ///
    /// # Cancel safety
    /// Safe: no hint is lost.
    pub async fn hint(&mut self) -> Option<()> {
        let hint = match &mut self.state {
            State::Stands(hints) => AssertUnwindSafe(hints.next()).catch_unwind().await,
            State::Ended => return None,
            State::None | State::UnderWay(_) => std::future::pending().await,
        };
        let hint = hint.unwrap_or_default();
        if hint.is_none() {
            // A stream must not be polled after its end.
            self.state = State::Ended;
        }
        hint
    }

    /// Gives it up: it has ended, or may be broken. One that is still under way goes on.
    pub fn end(&mut self) {
        if let State::UnderWay(answer) = &mut self.state
            && matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty))
        {
            return;
        }
        self.state = State::None;
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::None => "Subscription(none)",
            State::UnderWay(_) => "Subscription(under way)",
            State::Stands(_) => "Subscription(stands)",
            State::Ended => "Subscription(ended)",
        })
    }
}

/// Subscribes while somebody wants to know.
fn ask<F>(
    runtime: &Handle,
    clock: Arc<dyn Clock>,
    watch: F,
) -> oneshot::Receiver<Result<Hints, StoreError>>
where
    F: Future<Output = Result<Hints, StoreError>> + Send + 'static,
{
    let (mut tell, answer) = oneshot::channel();
    runtime.spawn(async move {
        let until = clock.now().after(ATTEMPT_LIMIT);
        let made = tokio::select! {
            biased;
            () = tell.closed() => return,
            made = crate::renewal::attempt(&*clock, until, || watch) => made,
        };
        // Nobody may want to know any more: it is dropped then.
        let _ = tell.send(made);
    });
    answer
}

fn gone() -> StoreError {
    StoreError::unavailable("hints need a tokio runtime that goes on; wait in a task of one")
}

fn this_runtime() -> Option<runtime::Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

#[cfg(test)]
mod tests;
