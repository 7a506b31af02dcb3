//! A store whose calls can be made to fail, on tokio's paused time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_conformance::queue::{Wrapped, Wraps};
use lease_core::{Clock, Key, Moment, Owner, StoreError, StoreErrorKind};
use lease_queue::{
    Added, Answer, Backoff, ClaimRef, ClaimRequest, ItemState, MemoryQueues, NewItem, Phase, Queue,
    QueueBuilder, QueueName, QueueStore, Settle, Settled,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mail {
    pub(crate) to: String,
}

pub(crate) fn mail(to: &str) -> Mail {
    Mail { to: to.to_owned() }
}

/// Tokio's clock.
#[derive(Debug)]
pub(crate) struct TestClock(Instant);

#[async_trait]
impl Clock for TestClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(1_000_000_000).after(Instant::now() - self.0)
    }

    async fn sleep_until(&self, until: Moment) {
        if until == Moment::NEVER {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(until.since(self.now())).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Put,
    Claim,
    Extend,
    /// Any other settle.
    Settle,
    Abandon,
    Watch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It takes effect, and no answer comes.
    LosesReply,
    /// It takes effect, and nothing comes at all.
    Hangs,
    /// It takes effect after three seconds.
    Slow,
    /// No effect.
    Unavailable,
    /// No effect.
    Refuses,
    /// No effect.
    Invalid,
}

#[derive(Debug, Default)]
struct Script {
    faults: HashMap<Op, Vec<Fault>>,
    calls: HashMap<Op, usize>,
}

/// One store, with a memory inside.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) memory: MemoryQueues,
    pub(crate) clock: Arc<TestClock>,
    script: Arc<Mutex<Script>>,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(TestClock(Instant::now()));
        let shared: Arc<dyn Clock> = Arc::<TestClock>::clone(&clock);
        Self {
            memory: MemoryQueues::with_clock(shared, secs(1_700_000_000)),
            clock,
            script: Arc::default(),
        }
    }

    pub(crate) fn builder(&self) -> QueueBuilder<Mail, lease_queue::Json> {
        let clock: Arc<dyn Clock> = Arc::<TestClock>::clone(&self.clock);
        Queue::builder(Arc::new(Wrapped(self.clone())), "mail")
            .clock(clock)
            .ttl(secs(10))
            .backoff(Backoff::NONE)
    }

    pub(crate) fn queue(&self) -> Queue<Mail> {
        self.builder().build().unwrap()
    }

    /// The next calls of this kind fail so.
    pub(crate) fn fails(&self, op: Op, faults: &[Fault]) {
        let mut script = self.script.lock().unwrap();
        let of = script.faults.entry(op).or_default();
        of.extend(faults.iter().copied());
    }

    /// Nothing fails any more.
    pub(crate) fn heals(&self) {
        self.script.lock().unwrap().faults.clear();
    }

    pub(crate) fn calls(&self, op: Op) -> usize {
        self.script
            .lock()
            .unwrap()
            .calls
            .get(&op)
            .copied()
            .unwrap_or_default()
    }

    fn fault(&self, op: Op) -> Option<Fault> {
        let mut script = self.script.lock().unwrap();
        *script.calls.entry(op).or_default() += 1;
        let faults = script.faults.get_mut(&op)?;
        (!faults.is_empty()).then(|| faults.remove(0))
    }

    /// Does `call`, or fails as the script says.
    async fn act<T>(
        &self,
        op: Op,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match self.fault(op) {
            None => call.await,
            Some(Fault::Unavailable) => Err(StoreError::unavailable("down")),
            Some(Fault::Refuses) => Err(StoreError::refusing("read-only")),
            Some(Fault::Invalid) => Err(StoreError::new(
                StoreErrorKind::InvalidInput,
                "not this one",
            )),
            Some(Fault::LosesReply) => {
                let _ = call.await;
                Err(StoreError::unknown_outcome("cut"))
            }
            Some(Fault::Slow) => {
                tokio::time::sleep(secs(3)).await;
                call.await
            }
            Some(Fault::Hangs) => {
                let _ = call.await;
                std::future::pending().await
            }
        }
    }

    /// The one item of the queue, dead or not.
    pub(crate) async fn item(&self) -> Option<ItemState> {
        use futures_util::StreamExt;
        let name = QueueName::new("mail").unwrap();
        let mut all = Vec::new();
        for dead in [false, true] {
            all.extend(self.memory.items(&name, dead).collect::<Vec<_>>().await);
        }
        assert!(all.len() <= 1, "{all:?}");
        all.pop().map(Result::unwrap)
    }

    pub(crate) async fn attempts(&self) -> u32 {
        self.item().await.map_or(0, |item| item.attempts)
    }

    /// Waits, for at most a minute, until the item is no longer claimed.
    pub(crate) async fn until_free(&self) -> Option<ItemState> {
        for _ in 0..6_000 {
            let item = self.item().await;
            if !item
                .as_ref()
                .is_some_and(|i| matches!(i.phase, Phase::Claimed(_)))
            {
                return item;
            }
            tokio::time::sleep(ms(10)).await;
        }
        panic!("the item is claimed for ever");
    }
}

#[async_trait]
impl Wraps for World {
    fn inner(&self) -> Arc<dyn QueueStore> {
        Arc::new(self.memory.clone())
    }

    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        self.act(Op::Put, self.memory.put(queue, items)).await
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        self.act(Op::Claim, self.memory.claim(queue, request)).await
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        let extends = claims.iter().all(|(_, s)| matches!(s, Settle::Extend(_)));
        let op = if extends { Op::Extend } else { Op::Settle };
        let all = async { Ok(self.memory.settle(queue, claims).await) };
        match self.act(op, all).await {
            Ok(answers) => answers,
            Err(error) => claims.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        let call = self.memory.abandon(queue, key, owner);
        self.act(Op::Abandon, call).await
    }

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        self.act(Op::Watch, self.memory.watch(queue, key)).await
    }
}
