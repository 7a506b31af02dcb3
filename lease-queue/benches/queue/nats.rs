//! The floor on NATS: a message is fetched and given back. No compare-and-set, so nothing
//! keeps a late worker away.

use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, AckKind, consumer, stream};
use async_trait::async_trait;
use futures_util::StreamExt;
use lease_conformance::bench::{Drained, by_tasks};

use crate::ours::BODY;

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
        // As many as there are tasks at most.
        for _ in 0..64 {
            let put = context.publish("bare.x", BODY.into()).await.unwrap();
            put.await.unwrap();
        }
        Self { context, consumer }
    }

    async fn pair(&self) {
        let mut messages = self
            .consumer
            .fetch()
            .max_messages(1)
            .messages()
            .await
            .unwrap();
        let message = messages.next().await.unwrap().unwrap();
        message.ack_with(AckKind::Nak(None)).await.unwrap();
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
