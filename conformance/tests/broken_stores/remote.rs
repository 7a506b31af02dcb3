//! A store behind a network, in a place where others write, too; and what can be
//! done to it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_conformance::{FixtureError, Network, Spoil, Spoiling};
use lease_core::{
    AcquireOutcome, AcquireRequest, Diagnosis, FenceWhen, Guarantees, Key, KeyState, LeaseBackend,
    Owner, RefusedReason, ReleaseOutcome, RenewOutcome, RenewRequest, Session, StoreError, Token,
    Ttl,
};
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;

use crate::fault::Fault;
use crate::faulty::Faulty;

/// What all clients of one store share.
#[derive(Debug, Default)]
pub(crate) struct World {
    paused: watch::Sender<bool>,
    cuts: AtomicU64,
    /// Told of the next reply, which is lost.
    lost: Mutex<Option<oneshot::Sender<()>>>,
    /// Whether the foreign value is still as it was.
    foreign: Mutex<HashMap<Key, bool>>,
    quarantine: AtomicBool,
}

impl World {
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    pub(crate) fn quarantine(&self) {
        self.quarantine.store(true, Ordering::SeqCst);
    }

    fn is_paused(&self) -> bool {
        *self.paused.borrow()
    }

    async fn goes_on(&self) {
        let mut paused = self.paused.subscribe();
        // The sender is in `self`.
        let _ = paused.wait_for(|paused| !*paused).await;
    }

    fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::SeqCst)
    }

    fn foreign(&self) -> MutexGuard<'_, HashMap<Key, bool>> {
        self.foreign.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn lost(&self) -> MutexGuard<'_, Option<oneshot::Sender<()>>> {
        self.lost.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[async_trait]
impl Network for World {
    async fn cut(&self) -> Result<(), FixtureError> {
        self.cuts.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn lose_reply(&self) -> Result<BoxFuture<'static, ()>, FixtureError> {
        let (sender, lost) = oneshot::channel();
        *self.lost() = Some(sender);
        Ok(lost.map(drop).boxed())
    }
}

#[async_trait]
impl Spoiling for World {
    async fn spoil(&self, key: &Key, how: Spoil) -> Result<bool, FixtureError> {
        // A map has values of one type only.
        if how == Spoil::ForeignType {
            return Ok(false);
        }
        self.foreign().insert(key.clone(), true);
        Ok(true)
    }

    async fn spoiled_is_intact(&self, key: &Key, _: Spoil) -> Result<bool, FixtureError> {
        Ok(self.foreign().get(key).copied().unwrap_or_default())
    }
}

/// A client of the store, as far away as the world says.
#[derive(Debug)]
pub(crate) struct Remote {
    inner: Faulty,
    world: Arc<World>,
    fault: Fault,
}

impl Remote {
    pub(crate) fn new(inner: Faulty, world: Arc<World>, fault: Fault) -> Self {
        Self {
            inner,
            world,
            fault,
        }
    }

    /// There and back.
    async fn sent<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let world = &self.world;
        let cuts = world.cuts();
        if self.fault == Fault::StaysCut && cuts > 0 {
            return Err(StoreError::unavailable("not connected"));
        }
        if self.fault == Fault::DropsRequestsInPause && world.is_paused() {
            std::future::pending::<()>().await;
        }
        yield_now().await;
        world.goes_on().await;
        let answer = work.await;
        yield_now().await;
        let lost = world.lost().take();
        let was_lost = lost.is_some_and(|lost| lost.send(()).is_ok());
        match was_lost || world.cuts() != cuts {
            true if self.fault == Fault::TakesSilenceForNo => {
                Err(StoreError::unavailable("the connection was cut"))
            }
            true => Err(StoreError::unknown_outcome("the connection was cut")),
            false => answer,
        }
    }

    /// Whether a foreign value stands in the key's place.
    fn ours(&self, key: &Key) -> Result<(), StoreError> {
        let mut foreign = self.world.foreign();
        match foreign.get_mut(key) {
            None => Ok(()),
            Some(intact) if self.fault == Fault::OverwritesForeign => {
                *intact = false;
                Ok(())
            }
            Some(_) => Err(StoreError::refusing(
                "a foreign value is in the key's place",
            )),
        }
    }

    async fn renewed(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        self.ours(&request.key)?;
        self.inner.renew(request).await
    }
}

#[async_trait]
impl LeaseBackend for Remote {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.sent(async {
            if self.world.quarantine.load(Ordering::SeqCst) {
                let remaining = Duration::from_secs(3600);
                let reason = RefusedReason::Quarantine { remaining };
                return Ok(AcquireOutcome::Refused(reason));
            }
            self.ours(&request.key)?;
            self.inner.acquire(request).await
        })
        .await
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        self.sent(async {
            self.ours(key)?;
            self.inner.abandon(key, owner).await
        })
        .await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        if self.fault == Fault::AnswersInPause && self.world.is_paused() {
            return Ok(RenewOutcome::Renewed);
        }
        self.sent(self.renewed(request)).await
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        if self.fault == Fault::AnswersInPause && self.world.is_paused() {
            return requests.iter().map(|_| Ok(RenewOutcome::Renewed)).collect();
        }
        let batch = self.sent(async {
            // For the faults of the list as a whole.
            if self.world.foreign().is_empty() {
                return Ok(self.inner.renew_many(requests).await);
            }
            let mut outcomes = Vec::new();
            for request in requests {
                outcomes.push(self.renewed(request).await);
            }
            if self.fault == Fault::SpoilsBatches
                && let Some(Err(e)) = outcomes.iter().find(|outcome| outcome.is_err())
            {
                return Err(e.clone());
            }
            Ok(outcomes)
        });
        match batch.await {
            Ok(outcomes) => outcomes,
            Err(e) => requests.iter().map(|_| Err(e.clone())).collect(),
        }
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        self.sent(async {
            self.ours(key)?;
            self.inner.release(key, owner, token).await
        })
        .await
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        self.sent(async {
            self.ours(key)?;
            self.inner.fence(key, at_least, when).await
        })
        .await
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        self.sent(async {
            self.ours(key)?;
            self.inner.inspect(key).await
        })
        .await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        let foreign: Vec<Key> = self.world.foreign().keys().cloned().collect();
        if self.fault == Fault::EndsListsAtForeign && !foreign.is_empty() {
            let e = StoreError::refusing("a foreign value is in a key's place");
            let first = self.inner.list(prefix).take(1);
            return first.chain(stream::iter([Err(e)])).boxed();
        }
        self.inner
            .list(prefix)
            .filter(move |state| {
                let passes = !matches!(state, Ok(state) if foreign.contains(&state.key));
                std::future::ready(passes)
            })
            .boxed()
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        self.inner.watch(key).await
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        self.inner.ping().await
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.inner.diagnose(ttl).await
    }
}
