//! The floor on NATS: a message is fetched and given back. No compare-and-set, so nothing
//! keeps a late worker away.

use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, AckKind, consumer, stream};
use async_trait::async_trait;
use futures_util::StreamExt;
use lease_conformance::bench::{Drained, by_tasks};

use crate::ours::BODY;

/// More than there are tasks: what is given back is there again a moment later, since
/// nobody answers that.
const MESSAGES: usize = 1024;

pub(crate) struct Fetch {
    context: jetstream::Context,
    consumer: PullConsumer,
}

impl Fetch {
    pub(crate) async fn new(url: &str) -> Self {
        let context = jetstream::new(async_nats::connect(url).await.unwrap());
        let stream = stream::Config {
            name: "bare".to_owned(),
            subjects: vec!["bare.>".to_owned()],
            storage: stream::StorageType::File,
            retention: stream::RetentionPolicy::WorkQueue,
            ..Default::default()
        };
        let stream = context.get_or_create_stream(stream).await.unwrap();
        let config = consumer::pull::Config {
            durable_name: Some("bare".to_owned()),
            ack_wait: Duration::from_secs(30),
            max_ack_pending: -1,
            ..Default::default()
        };
        let consumer = stream.get_or_create_consumer("bare", config).await.unwrap();
        for _ in 0..MESSAGES {
            let put = context.publish("bare.x", BODY.into()).await.unwrap();
            put.await.unwrap();
        }
        Self { context, consumer }
    }

    async fn pair(&self) {
        loop {
            let fetch = self.consumer.fetch().max_messages(1);
            let mut messages = fetch.messages().await.unwrap();
            if let Some(message) = messages.next().await {
                message.unwrap().ack_with(AckKind::Nak(None)).await.unwrap();
                return;
            }
        }
    }
}

#[async_trait]
impl Drained for Fetch {
    fn name(&self) -> String {
        "bare fetch + nak (file)".to_owned()
    }

    async fn fill(&self, _items: usize) {
        let _ = &self.context;
    }

    async fn drain(&self, tasks: usize, items: usize) -> Vec<f64> {
        by_tasks(tasks, items, || self.pair()).await
    }
}
