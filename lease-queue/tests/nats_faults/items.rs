//! What is asked of items is told that there are none, and is nothing else.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use lease_conformance::servers::nats::NatsServer;
use lease_core::{Label, Owner, StoreError, StoreErrorKind, Ttl};
use lease_queue::nats::NatsOptions;
use lease_queue::{ClaimRequest, ItemId, NewItem, QueueInput, QueueName, QueueStore, What};

#[track_caller]
fn is_told<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::InvalidInput);
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.downcast_ref(), Some(&QueueInput::NoItems));
}

#[tokio::test]
async fn every_request_for_items_is_told_that_there_are_none() {
    let server = NatsServer::builder().start().unwrap();
    let options = NatsOptions::from_url(&server.url().to_string()).unwrap();
    let (store, queue) = (options.open().await.unwrap(), QueueName::new("q").unwrap());
    assert!(!store.capabilities().items);
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
