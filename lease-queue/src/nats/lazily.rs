//! A store that connects when somebody first asks it.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::{Diagnosis, FenceWhen, Key, KeyState, Owner, StoreError, Token, Ttl};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::options::NatsOptions;
use super::store::NatsStore;
use super::{errors, promise};
use crate::item::{ClaimRef, ItemId, ItemState, NewItem};
use crate::name::{Lane, QueueName};
use crate::store::{Added, Answer, Capabilities, ClaimRequest, Depth, QueueStore, Settle, Settled};

/// A [`NatsStore`] that is opened by the first operation, and by the next one where that
/// could not: for a program that must start while the servers may be away. Made by
/// [`NatsOptions::open_lazily`].
///
/// Cheap to clone; a clone is the same client.
#[derive(Clone)]
pub struct LazyNatsStore {
    options: NatsOptions,
    /// Until it is open.
    promised: Arc<Capabilities>,
    opened: Arc<OnceCell<NatsStore>>,
}

impl LazyNatsStore {
    /// The options are checked.
    pub(super) fn new(options: NatsOptions) -> Self {
        Self {
            promised: Arc::new(promise::promised(options.replicas.unwrap_or(1))),
            options,
            opened: Arc::default(),
        }
    }

    /// The store, opened if it is not. That may take as long as any operation may: an
    /// error says that nothing was asked for.
    async fn store(&self) -> Result<&NatsStore, StoreError> {
        let limit = self.options.response_timeout;
        let open = || self.options.clone().open();
        let opened = timeout(limit, self.opened.get_or_try_init(open)).await;
        opened.unwrap_or_else(|_| Err(errors::not_connected(limit)))
    }

    fn list<T: Send + 'static>(
        &self,
        list: impl FnOnce(&NatsStore) -> BoxStream<'static, Result<T, StoreError>> + Send + 'static,
    ) -> BoxStream<'static, Result<T, StoreError>> {
        let store = self.clone();
        let begin = async move {
            match store.store().await {
                Ok(store) => list(store),
                Err(error) => stream::iter([Err(error)]).boxed(),
            }
        };
        stream::once(begin).flatten().boxed()
    }
}

#[async_trait]
impl QueueStore for LazyNatsStore {
    fn capabilities(&self) -> Capabilities {
        match self.opened.get() {
            Some(store) => store.capabilities(),
            None => Capabilities::clone(&self.promised),
        }
    }

    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        self.store().await?.put(queue, items).await
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        self.store().await?.claim(queue, request).await
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        match self.store().await {
            Ok(store) => store.settle(queue, claims).await,
            Err(error) => claims.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        self.store().await?.abandon(queue, key, owner).await
    }

    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        let store = self.store().await?;
        store.fence(queue, lane, at_least, when).await
    }

    async fn inspect(&self, queue: &QueueName, key: &Key) -> Result<KeyState, StoreError> {
        self.store().await?.inspect(queue, key).await
    }

    fn keys(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>> {
        let (queue, prefix) = (queue.clone(), prefix.to_owned());
        self.list(move |store| store.keys(&queue, &prefix))
    }

    fn items(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        let queue = queue.clone();
        self.list(move |store| store.items(&queue, dead))
    }

    async fn requeue(&self, queue: &QueueName, item: ItemId) -> Result<bool, StoreError> {
        self.store().await?.requeue(queue, item).await
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth, StoreError> {
        self.store().await?.depth(queue).await
    }

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        self.store().await?.watch(queue, key).await
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.store().await?.diagnose(ttl).await
    }
}

impl fmt::Debug for LazyNatsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyNatsStore")
            .field("options", &self.options)
            .field("opened", &self.opened.initialized())
            .finish_non_exhaustive()
    }
}
