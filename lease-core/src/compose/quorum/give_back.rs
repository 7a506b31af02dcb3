//! What less than a majority granted is given back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::StreamExt;
use tokio::time::{Instant, timeout, timeout_at};

use super::Inner;
use super::background::runtime;
use super::fan_out::Answers;
use super::votes::Votes;
use crate::backend::{AcquireOutcome, AcquireRequest};
use crate::error::StoreError;
use crate::retry::ATTEMPT_LIMIT;
use crate::token::Token;

/// How long the caller is kept for nodes that have just answered.
const PROMPT: Duration = Duration::from_millis(500);

/// Gives back what stands and what may still come to stand. Gives whether
/// nothing does any more.
///
/// Until then the owner asks no more: what goes on in the background must not
/// meet a grant that a later request of it was counted in.
pub(super) async fn all(
    inner: &Arc<Inner>,
    request: &AcquireRequest,
    votes: Votes,
    awaited: Answers<Result<AcquireOutcome, StoreError>>,
) -> bool {
    let silent: Vec<usize> = votes.silent().collect();
    let unknown: Vec<usize> = votes.unknown().collect();
    let granted: Vec<_> = votes.granted().map(|(i, g)| (i, g.token)).collect();
    if granted.is_empty() && unknown.is_empty() && silent.is_empty() {
        return true;
    }
    let Ok(runtime) = runtime() else {
        return false;
    };
    if !inner.rules.give_back {
        return false;
    }
    inner.unsettled.add(request.owner);
    let nobody_is_slow = unknown.is_empty() && silent.is_empty();
    let settling = Settling {
        inner: Arc::clone(inner),
        request: request.clone(),
        settled: true,
    };
    // In a task, so that it ends whatever becomes of the caller.
    let settled = runtime.spawn(settling.run(granted, unknown, silent, awaited));
    nobody_is_slow && matches!(timeout(PROMPT, settled).await, Ok(Ok(true)))
}

/// Gives back what is known to stand, and leaves the rest to the caller's next try.
/// That one agrees on a higher token: a release that comes late, by its own token,
/// does nothing then to a grant that was counted.
pub(super) async fn granted(inner: &Arc<Inner>, request: &AcquireRequest, votes: &Votes) {
    let Some(highest) = votes.granted().map(|(_, granted)| granted.token).max() else {
        return;
    };
    if !inner.rules.give_back {
        return;
    }
    // First: this future may be dropped with releases under way.
    inner.unsettled.released_up_to(request.owner, highest);
    let ends = votes
        .granted()
        .map(|(i, granted)| release_on(inner, i, request, granted.token));
    join_all(ends).await;
}

/// Abandons an owner that was refused after some nodes had granted: it can have
/// nothing any more.
pub(super) fn everything(inner: &Arc<Inner>, request: &AcquireRequest) {
    if inner.rules.give_back {
        inner.unsettled.add(request.owner);
        inner.unsettled.burnt(request.owner);
        for node in &inner.nodes {
            inner.abandon_on(node, &request.key, request.owner);
        }
    }
}

struct Settling {
    inner: Arc<Inner>,
    request: AcquireRequest,
    settled: bool,
}

impl Settling {
    async fn run(
        mut self,
        granted: Vec<(usize, Token)>,
        unknown: Vec<usize>,
        mut silent: Vec<usize>,
        mut awaited: Answers<Result<AcquireOutcome, StoreError>>,
    ) -> bool {
        for i in unknown {
            self.abandon(i);
        }
        self.release(granted).await;
        let until = Instant::now() + ATTEMPT_LIMIT;
        while let Ok(Some((i, answer))) = timeout_at(until, awaited.next()).await {
            silent.retain(|other| *other != i);
            match answer {
                Ok(AcquireOutcome::Granted(granted)) => {
                    self.release(vec![(i, granted.token)]).await;
                }
                Ok(_) => {}
                Err(error) if error.is_unknown_outcome() => self.abandon(i),
                Err(_) => {}
            }
        }
        for i in silent {
            self.abandon(i);
        }
        if self.settled {
            self.inner.unsettled.settled(self.request.owner);
        }
        self.settled
    }

    async fn release(&mut self, granted: Vec<(usize, Token)>) {
        let ends = granted.into_iter().map(|(i, token)| {
            let (inner, request) = (&self.inner, &self.request);
            async move { (i, release_on(inner, i, request, token).await) }
        });
        for (i, free) in join_all(ends).await {
            if !free {
                self.abandon(i);
            }
        }
    }

    /// The owner is burnt from now on.
    fn abandon(&mut self, i: usize) {
        self.settled = false;
        self.inner.unsettled.burnt(self.request.owner);
        if let Some(node) = self.inner.nodes.get(i) {
            self.inner
                .abandon_on(node, &self.request.key, self.request.owner);
        }
    }
}

/// Releases a grant on one node; whether the node said that it is gone.
pub(super) async fn release_on(
    inner: &Inner,
    i: usize,
    request: &AcquireRequest,
    token: Token,
) -> bool {
    let Some(node) = inner.nodes.get(i) else {
        return true;
    };
    let call = node.backend.release(&request.key, request.owner, token);
    matches!(timeout(ATTEMPT_LIMIT, call).await, Ok(Ok(_)))
}
