//! A store that keeps keys alone: what is asked of items is told so, and is nothing else.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use lease_conformance::queue::{Wrapped, Wraps};
use lease_core::{Key, Label, LeaseBackend, Owner, StoreError, StoreErrorKind, Ttl};
use lease_queue::{
    Added, Answer, Capabilities, ClaimRequest, Depth, ItemId, ItemState, KeyedLeases, MemoryQueues,
    NewItem, Queue, QueueError, QueueInput, QueueName, QueueStore, What, check_items, check_put,
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
impl Wraps for KeysAlone {
    fn inner(&self) -> Arc<dyn QueueStore> {
        Arc::new(self.0.clone())
    }

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

    fn items(&self, _: &QueueName, _: bool) -> BoxStream<'static, Result<ItemState, StoreError>> {
        stream::iter([self.no_items()]).boxed()
    }

    async fn requeue(&self, _: &QueueName, _: ItemId) -> Result<bool, StoreError> {
        self.no_items()
    }

    async fn depth(&self, _: &QueueName) -> Result<Depth, StoreError> {
        self.no_items()
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
    let (store, queue) = (Wrapped(KeysAlone::default()), QueueName::new("q").unwrap());
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
    let store = Arc::new(Wrapped(KeysAlone::default()));
    let queue = Queue::<u8>::builder(Arc::<Wrapped<KeysAlone>>::clone(&store), "q")
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
