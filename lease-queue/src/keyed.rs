//! Leases on a queue: one permanent token item for each key.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use lease_core::{
    AcquireOutcome, AcquireRequest, Diagnosis, FenceWhen, Granted, Guarantees, Key, KeyState,
    LeaseBackend, LostCause, Owner, ReleaseOutcome, RenewOutcome, RenewRequest, Session,
    StoreError, Token, Ttl,
};

use crate::item::{ClaimRef, ItemId};
use crate::name::{Lane, QueueName};
use crate::store::{Answer, ClaimRequest, MAX_BATCH, QueueStore, Settle, Settled, What};

/// The leases of one queue: whoever holds a key's token item holds its lease.
///
/// A [`LeaseBackend`] over any [`QueueStore`], for `lease_core::Leases`. The leases
/// promise what the store's [`capabilities`](QueueStore::capabilities) say. Keys and
/// the queue's items do not meet: a key may have the name of a group.
///
/// ```
/// use std::sync::Arc;
/// use lease_core::Leases;
/// use lease_queue::{KeyedLeases, MemoryQueues, QueueName};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(MemoryQueues::new());
/// let backend = KeyedLeases::new(store, QueueName::new("locks")?);
/// let leases = Leases::new(Arc::new(backend));
/// let lease = leases.lease("reports/daily").acquire().await?;
/// lease.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct KeyedLeases {
    store: Arc<dyn QueueStore>,
    queue: QueueName,
}

impl KeyedLeases {
    /// The leases of this queue.
    #[must_use]
    pub fn new(store: Arc<dyn QueueStore>, queue: QueueName) -> Self {
        Self { store, queue }
    }

    fn claim(key: &Key, owner: Owner, token: Token) -> ClaimRef {
        ClaimRef {
            item: ItemId::TOKEN,
            lane: Lane::Key(key.clone()),
            owner,
            token,
        }
    }

    async fn extend(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let claims: Vec<_> = requests
            .iter()
            .map(|request| {
                let claim = Self::claim(&request.key, request.owner, request.token);
                (claim, Settle::Extend(request.ttl))
            })
            .collect();
        let mut settled = self.store.settle(&self.queue, &claims).await.into_iter();
        let outcome = |_| match settled.next().unwrap_or_else(|| Err(unanswered()))? {
            Settled::Done => Ok(RenewOutcome::Renewed),
            Settled::Before => Ok(RenewOutcome::Lost(LostCause::Released)),
            Settled::Lost(cause) => Ok(RenewOutcome::Lost(cause)),
        };
        claims.iter().map(outcome).collect()
    }
}

/// A store that gives fewer answers than it was asked for breaks its contract; what
/// it did is not known.
pub(crate) fn unanswered() -> StoreError {
    StoreError::unknown_outcome("the store gave fewer answers than there were claims")
}

#[async_trait]
impl LeaseBackend for KeyedLeases {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        let claim = ClaimRequest {
            owner: request.owner,
            ttl: request.ttl,
            label: request.label.clone(),
            what: What::Key {
                key: request.key.clone(),
                rule: request.rule,
                waits: request.waits,
            },
        };
        Ok(match self.store.claim(&self.queue, &claim).await? {
            Answer::Claimed {
                items,
                taken_over,
                repeated,
            } => {
                let claimed = items.into_iter().next().ok_or_else(unanswered)?;
                AcquireOutcome::Granted(Granted {
                    token: claimed.claim.token,
                    taken_over,
                    repeated,
                })
            }
            Answer::Held(holder) => AcquireOutcome::Held(holder),
            Answer::Refused(reason) => AcquireOutcome::Refused(reason),
            // A key is never absent: its item is made when there is none.
            Answer::Nothing { .. } => return Err(unanswered()),
        })
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        self.store.abandon(&self.queue, Some(key), owner).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        let outcomes = self.extend(std::slice::from_ref(request)).await;
        outcomes
            .into_iter()
            .next()
            .unwrap_or_else(|| Err(unanswered()))
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let batches = requests.chunks(MAX_BATCH).map(|batch| self.extend(batch));
        join_all(batches).await.into_iter().flatten().collect()
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        let back = Settle::Retry {
            delay: Duration::ZERO,
            counts: false,
            error: None,
        };
        let claim = (Self::claim(key, owner, token), back);
        let settled = self.store.settle(&self.queue, &[claim]).await;
        match settled.into_iter().next().ok_or_else(unanswered)?? {
            Settled::Done => Ok(ReleaseOutcome::Released),
            Settled::Before | Settled::Lost(_) => Ok(ReleaseOutcome::NotHeld),
        }
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        let lane = Lane::Key(key.clone());
        self.store.fence(&self.queue, &lane, at_least, when).await
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        self.store.inspect(&self.queue, key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.store.keys(&self.queue, prefix)
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        self.store.watch(&self.queue, Some(key)).await
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        // A claim ends with its time alone.
        Ok(Session::NONE)
    }

    fn guarantees(&self) -> Guarantees {
        self.store.capabilities().guarantees
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.store.diagnose(ttl).await
    }
}
