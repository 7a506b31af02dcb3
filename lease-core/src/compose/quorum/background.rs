//! What goes on after a call has returned.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{Inner, Node};
use crate::backend::{FenceWhen, TOMBSTONE_RETENTION};
use crate::error::StoreError;
use crate::key::Key;
use crate::owner::Owner;
use crate::retry::{ATTEMPT_LIMIT, Backoff};
use crate::token::Token;

/// The most that waits to be done on one node. Beyond that a grant waits out its
/// TTL there.
const MOST_OWED: usize = 4096;
/// How many are under way at once on one node.
const AT_ONCE: usize = 32;

/// What is owed to one node.
#[derive(Debug)]
pub(super) struct Upkeep {
    owed: AtomicUsize,
    /// Turns for heals and abandonments: they must not crowd out requests.
    pub(super) turns: Semaphore,
    /// Until then the node refuses grants, as it said itself.
    quarantine: Mutex<Option<Instant>>,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            owed: AtomicUsize::new(0),
            turns: Semaphore::new(AT_ONCE),
            quarantine: Mutex::new(None),
        }
    }
}

impl Upkeep {
    pub(super) fn in_quarantine(&self, remaining: Duration) {
        let until = Instant::now().checked_add(remaining);
        *self.quarantine.lock().unwrap_or_else(|e| e.into_inner()) = until;
    }

    pub(super) fn is_in_quarantine(&self) -> bool {
        let until = *self.quarantine.lock().unwrap_or_else(|e| e.into_inner());
        until.is_some_and(|until| Instant::now() < until)
    }
}

/// The runtime for what outlives a call.
///
/// # Errors
/// Outside of a runtime. Nothing was sent.
pub(super) fn runtime() -> Result<Handle, StoreError> {
    Handle::try_current().map_err(|_| {
        StoreError::refusing("a quorum needs a running tokio runtime: call it from within one")
    })
}

/// Lets `work` go on without its caller, for as long as one attempt may take;
/// twice as long where it has two steps.
pub(super) fn go_on(work: impl Future<Output = ()> + Send + 'static) {
    if let Ok(handle) = Handle::try_current() {
        handle.spawn(async move {
            // What is left unanswered then is as unknown as what was lost.
            let _ = tokio::time::timeout(ATTEMPT_LIMIT * 2, work).await;
        });
    }
}

impl Inner {
    /// Abandons `owner` on one node, however often it takes.
    pub(super) fn abandon_on(self: &Arc<Self>, node: &Arc<Node>, key: &Key, owner: Owner) {
        let key = key.clone();
        self.owe(node, move |node| {
            let key = key.clone();
            async move { node.backend.abandon(&key, owner).await.is_ok() }
        });
    }

    /// Raises the mark on one node, however often it takes.
    pub(super) fn fence_on(
        self: &Arc<Self>,
        node: &Arc<Node>,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) {
        let key = key.clone();
        self.owe(node, move |node| {
            let key = key.clone();
            async move { node.backend.fence(&key, at_least, when).await.is_ok() }
        });
    }

    /// Does something on one node until it is done; for no longer than anything
    /// that was sent before can be under way.
    fn owe<F>(
        self: &Arc<Self>,
        node: &Arc<Node>,
        work: impl Fn(Arc<Node>) -> F + Send + Sync + 'static,
    ) where
        F: Future<Output = bool> + Send + 'static,
    {
        let Ok(handle) = Handle::try_current() else {
            return;
        };
        if node.upkeep.owed.fetch_add(1, Ordering::Relaxed) >= MOST_OWED {
            node.upkeep.owed.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (inner, node) = (Arc::clone(self), Arc::clone(node));
        handle.spawn(async move {
            let trying = async {
                let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(30));
                loop {
                    {
                        let _turn = node.upkeep.turns.acquire().await;
                        let attempt = work(Arc::clone(&node));
                        if let Ok(true) = tokio::time::timeout(ATTEMPT_LIMIT, attempt).await {
                            return;
                        }
                    }
                    tokio::time::sleep(backoff.next(&inner.chance)).await;
                }
            };
            let _ = tokio::time::timeout(TOMBSTONE_RETENTION, trying).await;
            node.upkeep.owed.fetch_sub(1, Ordering::Relaxed);
        });
    }
}
