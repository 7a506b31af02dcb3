//! A store that counts what is asked of it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_conformance::queue::{Wrapped, Wraps};
use lease_core::{Key, StoreError};
use lease_queue::{Answer, ClaimRequest, QueueName, QueueStore};
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
    pub(crate) fn over(store: Arc<dyn QueueStore>) -> Arc<Wrapped<Self>> {
        let counts = watch::Sender::default();
        Arc::new(Wrapped(Self { store, counts }))
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
impl Wraps for Counting {
    fn inner(&self) -> Arc<dyn QueueStore> {
        Arc::clone(&self.store)
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

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        let hints = self.store.watch(queue, key).await?;
        self.counts.send_modify(|counts| counts.subscribed = true);
        Ok(hints)
    }
}
