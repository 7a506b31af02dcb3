//! The reference store of queues: the contract in one process's memory.
//!
//! Exact and fast, and gone with its process. What every other store of queues does is
//! compared with this one.

mod watch;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{
    Clock, Diagnosis, FenceWhen, Guarantees, Key, KeyState, LeaseBackend, MemoryStore, Owner,
    StoreError, SystemClock, Token, Ttl, WaiterOrder, check_fence,
};

use crate::check::{check_claim, check_put, check_settle};
use crate::item::{ClaimRef, ItemId, ItemState, NewItem};
use crate::name::{Lane, QueueName};
use crate::rules::QueueRules;
use crate::store::{Added, Answer, Capabilities, ClaimRequest, Depth, QueueStore, Settle, Settled};
use crate::table::Table;
use crate::table::lane::Now;

use watch::Watchers;

/// How many keys or items one look at a table lists.
const PAGE: usize = 256;

/// Queues in this process's memory.
///
/// Its [`depth`](QueueStore::depth) looks at every item of the queue, with all others
/// waiting: for tests and small queues.
///
/// A clone is another client of the same store.
#[derive(Clone)]
pub struct MemoryQueues {
    shared: Arc<Shared>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    /// Microseconds since the Unix epoch at the clock's start.
    epoch_us: u64,
    rules: QueueRules,
    can: Capabilities,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queues: HashMap<QueueName, Table>,
    watchers: Watchers,
}

impl MemoryQueues {
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

    /// An empty store on a clock of the caller's, which started `epoch` after the
    /// Unix epoch.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>, epoch: Duration) -> Self {
        Self::build(clock, epoch, QueueRules::ALL)
    }

    /// An empty store with some rule taken out, to show that the rule is needed.
    #[cfg(feature = "broken-rules")]
    #[must_use]
    pub fn broken(clock: Arc<dyn Clock>, epoch: Duration, rules: QueueRules) -> Self {
        Self::build(clock, epoch, rules)
    }

    fn build(clock: Arc<dyn Clock>, epoch: Duration, rules: QueueRules) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                epoch_us: u64::try_from(epoch.as_micros()).unwrap_or(u64::MAX),
                rules,
                can: Capabilities::new(guarantees()),
                state: Mutex::default(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A table is changed by one method call that does not panic; were one to,
        // its rows would still be whole.
        self.shared.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// One step at one queue, and the hints that follow from it.
    fn at<T>(&self, queue: &QueueName, step: impl FnOnce(&mut Table, Now) -> T) -> T {
        let mut state = self.state();
        // Under the lock: steps must see times in their own order.
        let us = self.shared.clock.now().as_nanos() / 1000;
        let now = Now {
            us,
            epoch_us: self.shared.epoch_us.saturating_add(us),
        };
        let rules = self.shared.rules;
        let State { queues, watchers } = &mut *state;
        let table = queues
            .entry(queue.clone())
            .or_insert_with(|| Table::new(rules));
        let outcome = step(table, now);
        watchers.wake(queue, &table.hints());
        outcome
    }

    /// Pages of a queue, each one step.
    fn pages<T, P>(
        &self,
        queue: &QueueName,
        page: impl Fn(&Table, Option<&P>, Now) -> Vec<(P, T)> + Send + 'static,
    ) -> BoxStream<'static, Result<T, StoreError>>
    where
        T: Send + 'static,
        P: Clone + Send + 'static,
    {
        let (store, queue) = (self.clone(), queue.clone());
        let pages = stream::unfold(Some(None), move |after: Option<Option<P>>| {
            let page =
                after.map(|after| store.at(&queue, |table, now| page(table, after.as_ref(), now)));
            async move {
                let page = page?;
                // A short page was the last one.
                let last = page.last().map(|(place, _)| place.clone());
                let next = (page.len() == PAGE).then_some(last);
                Some((page, next))
            }
        });
        pages
            .flat_map(stream::iter)
            .map(|(_, found)| Ok(found))
            .boxed()
    }
}

/// What the reference store of leases promises.
fn guarantees() -> Guarantees {
    let mut guarantees = MemoryStore::new().guarantees();
    guarantees.store = "queue+memory".into();
    guarantees.waiter_order(WaiterOrder::Fifo)
}

impl Default for MemoryQueues {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryQueues").finish_non_exhaustive()
    }
}

#[async_trait]
impl QueueStore for MemoryQueues {
    fn capabilities(&self) -> Capabilities {
        self.shared.can.clone()
    }

    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        check_put(items, &self.shared.can)?;
        Ok(self.at(queue, |table, now| {
            items.iter().map(|item| table.put(item, now)).collect()
        }))
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        check_claim(request)?;
        Ok(self.at(queue, |table, now| table.claim(request, now)))
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        let can = &self.shared.can;
        self.at(queue, |table, now| {
            let settle = |(claim, settle): &(ClaimRef, Settle)| {
                check_settle(claim, settle, can)?;
                Ok(table.settle(claim, settle, now))
            };
            claims.iter().map(settle).collect()
        })
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        self.at(queue, |table, now| table.abandon(key, owner, now));
        Ok(())
    }

    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        check_fence(at_least)?;
        Ok(self.at(queue, |table, now| table.fence(lane, at_least, when, now)))
    }

    async fn inspect(&self, queue: &QueueName, key: &Key) -> Result<KeyState, StoreError> {
        Ok(self.at(queue, |table, now| table.inspect(key, now)))
    }

    fn keys(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>> {
        let prefix = prefix.to_owned();
        self.pages(queue, move |table, after: Option<&Key>, now| {
            let page = table.key_page(&prefix, after, PAGE, now);
            page.into_iter().map(|k| (k.key.clone(), k)).collect()
        })
    }

    fn items(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        self.pages(queue, move |table, after: Option<&u64>, now| {
            table.item_page(dead, after.copied(), PAGE, now, &|_, grant| {
                grant.remaining(now)
            })
        })
    }

    async fn requeue(&self, queue: &QueueName, item: ItemId) -> Result<bool, StoreError> {
        Ok(self.at(queue, |table, now| table.requeue(item, now)))
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth, StoreError> {
        Ok(self.at(queue, |table, now| {
            table.depth(now, &|_, grant| grant.remaining(now))
        }))
    }

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        Ok(watch::subscribe(self, queue, key))
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        MemoryStore::new().diagnose(ttl).await
    }
}
