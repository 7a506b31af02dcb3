//! The reference store: the contract in one process's memory.
//!
//! Exact and fast, and gone with its process. What every other store does is
//! compared with this one.

mod table;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::Notify;

use crate::backend::{
    AcquireOutcome, AcquireRequest, FenceWhen, KeyState, LeaseBackend, ReleaseOutcome,
    RenewOutcome, RenewRequest, Session, TOMBSTONE_RETENTION, check_fence,
};
use crate::clock::{Clock, SystemClock};
use crate::diagnosis::{Diagnosis, Finding, Severity};
use crate::error::StoreError;
use crate::guarantees::{Exclusion, Guarantees, Survives, TtlRange, WakeUps};
use crate::key::Key;
use crate::owner::Owner;
use crate::rules::StoreRules;
use crate::token::Token;
use crate::ttl::Ttl;

use table::{Now, Table};

/// How many keys one look at the table lists.
const PAGE: usize = 256;

/// A store in this process's memory.
///
/// A clone is another client of the same store.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    /// Microseconds since the Unix epoch at the clock's start.
    epoch_us: u64,
    state: Mutex<State>,
}

struct State {
    table: Table,
    /// In the order in which they came, and woken in that order.
    watchers: HashMap<Key, Vec<Arc<Notify>>>,
}

impl MemoryStore {
    /// An empty store on the machine's clock.
    #[must_use]
    pub fn new() -> Self {
        let clock = SystemClock::new();
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let since_start = Duration::from_nanos(clock.now().as_nanos());
        let epoch = since_epoch.saturating_sub(since_start);
        Self::with_clock(Arc::new(clock), epoch)
    }

    /// An empty store on a clock of the caller's, which started `epoch` after
    /// the Unix epoch.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>, epoch: Duration) -> Self {
        Self::build(clock, epoch, TOMBSTONE_RETENTION, StoreRules::ALL)
    }

    /// An empty store with some rule of the contract taken out, to show that
    /// the rule is needed.
    #[cfg(feature = "broken-rules")]
    #[must_use]
    pub fn broken(
        clock: Arc<dyn Clock>,
        epoch: Duration,
        tombstone_retention: Duration,
        rules: StoreRules,
    ) -> Self {
        Self::build(clock, epoch, tombstone_retention, rules)
    }

    fn build(
        clock: Arc<dyn Clock>,
        epoch: Duration,
        retention: Duration,
        rules: StoreRules,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                epoch_us: u64::try_from(epoch.as_micros()).unwrap_or(u64::MAX),
                state: Mutex::new(State {
                    table: Table::new(retention, rules),
                    watchers: HashMap::new(),
                }),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The table is changed by one method call that does not panic; were
        // one to, its rows would still be whole.
        self.shared.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn now(&self) -> Now {
        let us = self.shared.clock.now().as_nanos() / 1000;
        Now {
            us,
            epoch_us: self.shared.epoch_us.saturating_add(us),
        }
    }
}

impl State {
    fn wake(&mut self, key: &Key) {
        for watcher in self.watchers.get(key).into_iter().flatten() {
            watcher.notify_one();
        }
    }

    fn watch(&mut self, key: &Key) -> Arc<Notify> {
        let watcher = Arc::new(Notify::new());
        let watchers = self.watchers.entry(key.clone()).or_default();
        watchers.push(Arc::clone(&watcher));
        watcher
    }

    fn unwatch(&mut self, key: &Key, watcher: &Arc<Notify>) {
        if let Some(watchers) = self.watchers.get_mut(key) {
            watchers.retain(|other| !Arc::ptr_eq(other, watcher));
            if watchers.is_empty() {
                self.watchers.remove(key);
            }
        }
    }
}

/// One subscription; dropping it ends it.
struct Watcher {
    store: MemoryStore,
    key: Key,
    hint: Arc<Notify>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.store.state().unwatch(&self.key, &self.hint);
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl LeaseBackend for MemoryStore {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        let mut state = self.state();
        Ok(state.table.acquire(request, self.now()))
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.table.abandon(key, owner, self.now()) {
            state.wake(key);
        }
        Ok(())
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        Ok(self.state().table.renew(request, self.now()))
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let mut state = self.state();
        let now = self.now();
        requests
            .iter()
            .map(|request| Ok(state.table.renew(request, now)))
            .collect()
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        let mut state = self.state();
        let outcome = state.table.release(key, owner, token, self.now());
        if outcome == ReleaseOutcome::Released {
            state.wake(key);
        }
        Ok(outcome)
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        check_fence(at_least)?;
        let mut state = self.state();
        let (mark, freed) = state.table.fence(key, at_least, when, self.now());
        if freed {
            state.wake(key);
        }
        Ok(mark)
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        Ok(self.state().table.inspect(key, self.now()))
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        let (store, prefix) = (self.clone(), prefix.to_owned());
        let pages = stream::unfold(Some(None), move |after: Option<Option<Key>>| {
            let page = after.map(|after| {
                store
                    .state()
                    .table
                    .page(&prefix, after.as_ref(), PAGE, store.now())
            });
            async move {
                let page = page?;
                // A short page was the last one.
                let next = (page.len() == PAGE).then(|| page.last().map(|k| k.key.clone()));
                Some((page, next))
            }
        });
        pages.flat_map(stream::iter).map(Ok).boxed()
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        let watcher = Watcher {
            store: self.clone(),
            key: key.clone(),
            hint: self.state().watch(key),
        };
        Ok(stream::unfold(watcher, |watcher| async move {
            watcher.hint.notified().await;
            Some(((), watcher))
        })
        .boxed())
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        Ok(Session::NONE)
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new("memory")
            // The store's clock never steps; and nothing of it is left to be
            // restarted.
            .exclusion(Exclusion::Process, Survives::NOTHING.clock_step())
            .tokens_survive(Survives::NOTHING.clock_step())
            .ttl(TtlRange::new(Ttl::MIN, Ttl::MAX, Duration::from_millis(1)))
            .wake_ups(WakeUps::Push)
            .listing(true)
    }

    async fn diagnose(&self, _ttl: Ttl) -> Result<Diagnosis, StoreError> {
        Ok(Diagnosis {
            findings: vec![
                Finding::new(
                    Severity::Note,
                    "the store lives in this process's memory",
                    "it excludes nobody outside of this process and is gone with it",
                )
                .advice("use sqlite:///path for one host, a server for more"),
            ],
        })
    }
}
