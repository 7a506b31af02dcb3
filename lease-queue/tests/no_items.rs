//! A store that keeps keys alone: what is asked of items is told so, and is nothing else.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_core::{
    Diagnosis, FenceWhen, Key, KeyState, Label, LeaseBackend, Owner, StoreError, StoreErrorKind,
    Token, Ttl,
};
use lease_queue::{
    Added, Answer, Capabilities, ClaimRef, ClaimRequest, Depth, ItemId, ItemState, KeyedLeases,
    Lane, MemoryQueues, NewItem, Queue, QueueError, QueueInput, QueueName, QueueStore, Settle,
    Settled, What, check_items, check_put,
};

/// As a store of somebody else's might be.
#[derive(Debug, Default)]
struct KeysAlone(MemoryQueues);

impl KeysAlone {
    fn no_items<T>(&self) -> Result<T, StoreError> {
        check_items(&self.capabilities())?;
        Err(StoreError::refusing("it has items"))
    }
}

#[async_trait]
impl QueueStore for KeysAlone {
    fn capabilities(&self) -> Capabilities {
        let mut can = self.0.capabilities();
        can.items = false;
        can
    }

    async fn put(&self, _: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        check_put(items, &self.capabilities())?;
        self.no_items()
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        match request.what {
            What::Key { .. } => self.0.claim(queue, request).await,
            What::Next { .. } => self.no_items(),
        }
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        self.0.settle(queue, claims).await
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        match key {
            Some(_) => self.0.abandon(queue, key, owner).await,
            None => self.no_items(),
        }
    }

    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        self.0.fence(queue, lane, at_least, when).await
    }

    async fn inspect(&self, queue: &QueueName, key: &Key) -> Result<KeyState, StoreError> {
        self.0.inspect(queue, key).await
    }

    fn keys(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.0.keys(queue, prefix)
    }

    fn items(&self, _: &QueueName, _: bool) -> BoxStream<'static, Result<ItemState, StoreError>> {
        stream::iter([self.no_items()]).boxed()
    }

    async fn requeue(&self, _: &QueueName, _: ItemId) -> Result<bool, StoreError> {
        self.no_items()
    }

    async fn depth(&self, _: &QueueName) -> Result<Depth, StoreError> {
        self.no_items()
    }

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        self.0.watch(queue, key).await
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.0.diagnose(ttl).await
    }
}

#[track_caller]
fn is_told<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::InvalidInput);
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.downcast_ref(), Some(&QueueInput::NoItems));
}

#[tokio::test]
async fn every_request_for_items_is_told_that_there_are_none() {
    let (store, queue) = (KeysAlone::default(), QueueName::new("q").unwrap());
    let item = NewItem {
        id: ItemId::random().unwrap(),
        body: Bytes::new(),
        group: None,
        dedup: None,
        delay: Duration::ZERO,
    };
    is_told(store.put(&queue, std::slice::from_ref(&item)).await);
    let request = ClaimRequest {
        owner: Owner::random().unwrap(),
        ttl: Ttl::MIN,
        label: Label::EMPTY,
        what: What::Next { max: 1 },
    };
    is_told(store.claim(&queue, &request).await);
    is_told(store.abandon(&queue, None, request.owner).await);
    is_told(store.requeue(&queue, item.id).await);
    is_told(store.depth(&queue).await);
    for dead in [false, true] {
        let listed: Vec<_> = store.items(&queue, dead).collect().await;
        assert_eq!(listed.len(), 1);
        listed.into_iter().for_each(is_told);
    }
}

#[tokio::test]
async fn people_are_told_too_and_may_lease_keys() {
    let store = std::sync::Arc::new(KeysAlone::default());
    let queue = Queue::<u8>::builder(std::sync::Arc::<KeysAlone>::clone(&store), "q")
        .build()
        .unwrap();
    match queue.put(&7).await {
        Err(QueueError::Store(error)) => is_told::<()>(Err(error)),
        other => panic!("{other:?}"),
    }
    let leases = KeyedLeases::new(store, QueueName::new("q").unwrap());
    let state = leases.inspect(&Key::new("k").unwrap()).await.unwrap();
    assert_eq!(state.high_water, None);
}
