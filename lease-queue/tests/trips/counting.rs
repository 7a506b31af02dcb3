//! A store that counts what is asked of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::{Diagnosis, FenceWhen, Key, KeyState, Owner, StoreError, Token, Ttl};
use lease_queue::{
    Added, Answer, Capabilities, ClaimRef, ClaimRequest, Depth, ItemId, ItemState, Lane, NewItem,
    QueueName, QueueStore, Settle, Settled,
};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    asked: usize,
    subscribed: bool,
    /// Asked in vain since it is subscribed: who asks sleeps now.
    asleep: bool,
}

#[derive(Debug)]
pub(crate) struct Counting {
    store: Arc<dyn QueueStore>,
    counts: watch::Sender<Counts>,
}

impl Counting {
    pub(crate) fn over(store: Arc<dyn QueueStore>) -> Arc<Self> {
        let counts = watch::Sender::default();
        Arc::new(Self { store, counts })
    }

    /// How often was asked for something to claim.
    pub(crate) fn asked(&self) -> usize {
        self.counts.borrow().asked
    }

    pub(crate) async fn until_asleep(&self) {
        let mut counts = self.counts.subscribe();
        let asleep = counts.wait_for(|counts| counts.asleep);
        let asleep = tokio::time::timeout(Duration::from_secs(60), asleep).await;
        drop(asleep.unwrap().unwrap());
    }
}

#[async_trait]
impl QueueStore for Counting {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        self.store.put(queue, items).await
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        // What was subscribed to before it was sent.
        let subscribed = self.counts.borrow().subscribed;
        self.counts.send_modify(|counts| counts.asked += 1);
        let answer = self.store.claim(queue, request).await;
        let vain = matches!(answer, Ok(Answer::Nothing { .. } | Answer::Held(_)));
        self.counts
            .send_modify(|counts| counts.asleep = subscribed && vain);
        answer
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        self.store.settle(queue, claims).await
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        self.store.abandon(queue, key, owner).await
    }

    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        self.store.fence(queue, lane, at_least, when).await
    }

    async fn inspect(&self, queue: &QueueName, key: &Key) -> Result<KeyState, StoreError> {
        self.store.inspect(queue, key).await
    }

    fn keys(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.store.keys(queue, prefix)
    }

    fn items(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        self.store.items(queue, dead)
    }

    async fn requeue(&self, queue: &QueueName, item: ItemId) -> Result<bool, StoreError> {
        self.store.requeue(queue, item).await
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth, StoreError> {
        self.store.depth(queue).await
    }

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        let hints = self.store.watch(queue, key).await?;
        self.counts.send_modify(|counts| counts.subscribed = true);
        Ok(hints)
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.store.diagnose(ttl).await
    }
}
