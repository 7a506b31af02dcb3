//! A store that counts what is asked of it, and whether a hint asked for that.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lease_conformance::queue::{Wrapped, Wraps};
use lease_core::{Key, StoreError};
use lease_queue::{Answer, ClaimRequest, QueueName, QueueStore};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    asked: usize,
    hints: usize,
    /// Asked without a hint that was not followed yet: by a timer.
    by_itself: usize,
    subscribed: bool,
    /// Asked in vain since it is subscribed: who asks sleeps now.
    asleep: bool,
}

#[derive(Debug)]
pub(crate) struct Counting {
    store: Arc<dyn QueueStore>,
    counts: Arc<watch::Sender<Counts>>,
}

impl Counting {
    pub(crate) fn over(store: Arc<dyn QueueStore>) -> Arc<Wrapped<Self>> {
        let counts = Arc::default();
        Arc::new(Wrapped(Self { store, counts }))
    }

    /// How often was asked for something to claim since it was asleep, and how often of
    /// those no hint had come that asked for it.
    pub(crate) fn asked(&self) -> (usize, usize) {
        let counts = self.counts.borrow();
        (counts.asked, counts.by_itself)
    }

    /// Until who asks sleeps; from then on is counted.
    pub(crate) async fn until_asleep(&self) {
        let mut counts = self.counts.subscribe();
        let asleep = counts.wait_for(|counts| counts.asleep);
        let asleep = tokio::time::timeout(Duration::from_secs(60), asleep).await;
        drop(asleep.unwrap().unwrap());
        self.counts.send_modify(|counts| {
            (counts.asked, counts.hints, counts.by_itself) = (0, 0, 0);
        });
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
        self.counts.send_modify(|counts| {
            counts.asked += 1;
            if counts.hints < counts.asked - counts.by_itself {
                counts.by_itself += 1;
            }
        });
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
        let counts = Arc::clone(&self.counts);
        let counted = move |()| counts.send_modify(|counts| counts.hints += 1);
        Ok(hints.map(counted).boxed())
    }
}
