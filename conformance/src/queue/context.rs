//! What a case works with: its store, its limits, and items.

use std::time::Duration;

use bytes::Bytes;
use lease_core::{ExpiryJudge, InvalidInput, Key, Ttl};
use lease_queue::{Capabilities, ItemId, NewItem, QueueName};

use crate::failure::{Failure, Outcome};
use crate::queue::case::Can;
use crate::queue::client::Client;
use crate::queue::fixture::{QueueFixture, QueueTarget};

/// Far longer than any case takes: what must not expire meanwhile.
const LONG: Duration = Duration::from_secs(300);
/// What a case waits out, several times over.
const SHORT: Duration = Duration::from_millis(200);

/// One case's store.
pub(crate) struct Ctx {
    target: Box<dyn QueueTarget>,
    can: Capabilities,
    queue: QueueName,
}

impl Ctx {
    pub(crate) async fn open(fixture: &dyn QueueFixture) -> Outcome<Self> {
        let target = fixture
            .open()
            .await
            .map_err(|e| Failure::says("the fixture opens a store", e.to_string()))?;
        let queue = queue("jobs")?;
        let client = connect(target.as_ref(), &queue).await?;
        let can = client.store().capabilities();
        Ok(Self { target, can, queue })
    }

    pub(crate) async fn close(self) {
        self.target.close().await;
    }

    pub(crate) fn facts(&self) -> Can {
        Can {
            can: self.can.clone(),
            restart: self.target.restart().is_some(),
            network: self.target.network().is_some(),
        }
    }

    pub(crate) fn can(&self) -> &Capabilities {
        &self.can
    }

    pub(crate) fn target(&self) -> &dyn QueueTarget {
        self.target.as_ref()
    }

    /// An independent client of the case's queue.
    pub(crate) async fn client(&self) -> Outcome<Client> {
        connect(self.target.as_ref(), &self.queue).await
    }

    /// One of another queue of the same store.
    pub(crate) async fn client_of(&self, name: &str) -> Outcome<Client> {
        connect(self.target.as_ref(), &queue(name)?).await
    }

    /// A TTL that does not end during the case.
    pub(crate) fn long(&self) -> Ttl {
        self.ttl(LONG)
    }

    /// A TTL that a case waits out.
    pub(crate) fn short(&self) -> Ttl {
        self.ttl(SHORT)
    }

    /// The TTL that the store takes and that is nearest to `wanted`.
    pub(crate) fn ttl(&self, wanted: Duration) -> Ttl {
        let range = self.can.guarantees.ttl;
        Ttl::new(wanted.min(range.max).max(range.min)).unwrap_or(Ttl::MIN)
    }

    /// After this, a claim of `ttl` that nobody extended is dead on any clock.
    pub(crate) fn surely_over(&self, ttl: Ttl) -> Duration {
        let resolution = self.can.guarantees.ttl.resolution;
        ttl.get() + resolution + ttl.get() / 50 + Duration::from_millis(50)
    }

    /// How exactly the store tells a claim's times, if it tells them by its own clock.
    pub(crate) fn exactness(&self) -> Option<Duration> {
        let claims = &self.can.guarantees;
        // What is told is rounded, at least to the millisecond.
        let rounding = claims.ttl.resolution.max(Duration::from_millis(1));
        (claims.expiry == ExpiryJudge::StoreClock).then_some(rounding)
    }
}

async fn connect(target: &dyn QueueTarget, queue: &QueueName) -> Outcome<Client> {
    let store = target
        .client()
        .await
        .map_err(|e| Failure::says("the fixture opens a client", e.to_string()))?;
    Ok(Client::new(store, queue.clone()))
}

fn queue(name: &str) -> Outcome<QueueName> {
    QueueName::new(name).map_err(|e| Failure::says("the suite's own queue is valid", e.to_string()))
}

/// A new item with this payload, ready at once and in no group.
pub(crate) fn item(body: &str) -> NewItem {
    NewItem {
        id: ItemId::random().unwrap_or_else(|e: InvalidInput| panic!("{e}")),
        body: Bytes::copy_from_slice(body.as_bytes()),
        group: None,
        dedup: None,
        delay: Duration::ZERO,
    }
}

/// As [`item`], of a group.
pub(crate) fn grouped(group: &Key, body: &str) -> NewItem {
    NewItem {
        group: Some(group.clone()),
        ..item(body)
    }
}

/// As [`item`], with a deduplication key.
pub(crate) fn once(dedup: &Key, body: &str) -> NewItem {
    NewItem {
        dedup: Some(dedup.clone()),
        ..item(body)
    }
}

/// As [`item`], with a delay.
pub(crate) fn later(delay: Duration, body: &str) -> NewItem {
    NewItem {
        delay,
        ..item(body)
    }
}
