//! The reference store as if it were a server: it can lose a reply and restart, with its
//! data or without.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use lease_conformance::queue::{QueueFixture, QueueTarget, Wrapped, Wraps};
use lease_conformance::{FixtureError, Network, Restart};
use lease_core::{StoreError, Survives};
use lease_queue::{
    Added, Answer, Capabilities, ClaimRef, ClaimRequest, MemoryQueues, NewItem, QueueName,
    QueueStore, Settle, Settled,
};
use tokio::sync::Notify;

/// What goes wrong at a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comes {
    BackWhole,
    BackEmpty,
}

pub(crate) struct Remotes(pub(crate) Comes);

#[async_trait]
impl QueueFixture for Remotes {
    async fn open(&self) -> Result<Box<dyn QueueTarget>, FixtureError> {
        Ok(Box::new(Remote {
            comes: self.0,
            server: Arc::default(),
        }))
    }
}

#[derive(Default)]
struct Server {
    memory: Mutex<MemoryQueues>,
    loses: AtomicBool,
    lost: Arc<Notify>,
}

struct Remote {
    comes: Comes,
    server: Arc<Server>,
}

#[async_trait]
impl QueueTarget for Remote {
    async fn client(&self) -> Result<Arc<dyn QueueStore>, FixtureError> {
        Ok(Arc::new(Wrapped(Client(Arc::clone(&self.server)))))
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(self)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(self)
    }
}

#[async_trait]
impl Restart for Remote {
    async fn restart(&self) -> Result<(), FixtureError> {
        if self.comes == Comes::BackEmpty {
            *self.server.memory.lock().unwrap() = MemoryQueues::new();
        }
        Ok(())
    }
}

#[async_trait]
impl Network for Remote {
    async fn cut(&self) -> Result<(), FixtureError> {
        Ok(())
    }

    async fn lose_reply(&self) -> Result<BoxFuture<'static, ()>, FixtureError> {
        self.server.loses.store(true, Ordering::SeqCst);
        let lost = Arc::clone(&self.server.lost);
        Ok(Box::pin(async move { lost.notified().await }))
    }
}

struct Client(Arc<Server>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    fn memory(&self) -> MemoryQueues {
        self.0.memory.lock().unwrap().clone()
    }

    /// Whether the reply gets lost.
    fn reply(&self) -> Result<(), StoreError> {
        if self.0.loses.swap(false, Ordering::SeqCst) {
            self.0.lost.notify_one();
            return Err(StoreError::unknown_outcome("cut"));
        }
        Ok(())
    }
}

#[async_trait]
impl Wraps for Client {
    fn inner(&self) -> Arc<dyn QueueStore> {
        Arc::new(self.memory())
    }

    fn capabilities(&self) -> Capabilities {
        let mut can = self.memory().capabilities();
        let reach = can.guarantees.exclusion;
        let survives = Survives::NOTHING.restart();
        can.guarantees = can.guarantees.exclusion(reach, survives);
        can.guarantees = can.guarantees.tokens_survive(survives);
        can
    }

    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        let added = self.memory().put(queue, items).await?;
        self.reply().map(|()| added)
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        let answer = self.memory().claim(queue, request).await?;
        self.reply().map(|()| answer)
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        let answers = self.memory().settle(queue, claims).await;
        match self.reply() {
            Ok(()) => answers,
            Err(error) => claims.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}
