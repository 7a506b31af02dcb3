//! A store whose queues have a name of the case before their own: a cluster and its
//! streams serve many cases.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::{Diagnosis, FenceWhen, Key, KeyState, Owner, StoreError, Token, Ttl};
use lease_queue::{
    Added, Answer, Capabilities, ClaimRef, ClaimRequest, Depth, ItemId, ItemState, Lane, NewItem,
    QueueName, QueueStore, Settle, Settled,
};

#[derive(Debug)]
pub(crate) struct Renamed {
    pub(crate) store: Arc<dyn QueueStore>,
    pub(crate) case: String,
}

impl Renamed {
    fn name(&self, queue: &QueueName) -> QueueName {
        QueueName::new(format!("{} {queue}", self.case)).unwrap()
    }
}

#[async_trait]
impl QueueStore for Renamed {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        self.store.put(&self.name(queue), items).await
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        self.store.claim(&self.name(queue), request).await
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        self.store.settle(&self.name(queue), claims).await
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        self.store.abandon(&self.name(queue), key, owner).await
    }

    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        let queue = self.name(queue);
        self.store.fence(&queue, lane, at_least, when).await
    }

    async fn inspect(&self, queue: &QueueName, key: &Key) -> Result<KeyState, StoreError> {
        self.store.inspect(&self.name(queue), key).await
    }

    fn keys(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.store.keys(&self.name(queue), prefix)
    }

    fn items(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        self.store.items(&self.name(queue), dead)
    }

    async fn requeue(&self, queue: &QueueName, item: ItemId) -> Result<bool, StoreError> {
        self.store.requeue(&self.name(queue), item).await
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth, StoreError> {
        self.store.depth(&self.name(queue)).await
    }

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        self.store.watch(&self.name(queue), key).await
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.store.diagnose(ttl).await
    }
}
