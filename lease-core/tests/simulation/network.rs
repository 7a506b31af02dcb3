//! The way to the store: requests and replies are delayed, lost, refused and
//! repeated, and a request that was sent goes on when its caller has gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{
    AcquireOutcome, AcquireRequest, Diagnosis, FenceWhen, Guarantees, Key, KeyState, LeaseBackend,
    MemoryStore, Moment, Owner, ReleaseOutcome, RenewOutcome, RenewRequest, Session, StoreError,
    Token, Ttl,
};
use rand::RngExt;
use tokio::sync::oneshot;

use crate::history::History;
use crate::world::Dice;

/// The longest that a request can be under way.
pub(crate) const LONGEST: Duration = Duration::from_secs(20);

/// One client's way to the store.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) store: MemoryStore,
    pub(crate) history: Arc<History>,
    pub(crate) dice: Dice,
    /// In how many of a hundred calls something goes wrong.
    pub(crate) trouble_percent: u32,
    /// Until then nothing that is sent arrives; what is on its way back does.
    pub(crate) cut_until: Mutex<Moment>,
    /// Nothing goes wrong any more.
    pub(crate) healed: Arc<AtomicBool>,
}

/// What becomes of one call.
struct Fate {
    there: Duration,
    back: Duration,
    arrives: bool,
    answered: bool,
    /// What a caller without an answer sees: an error, or nothing at all.
    hangs: bool,
    refused: bool,
    repeated: Option<Duration>,
}

impl Network {
    fn fate(&self) -> Fate {
        let percent = match self.healed.load(Ordering::Relaxed) {
            true => 0,
            false => self.trouble_percent,
        };
        self.dice.roll(|r| {
            let usual =
                |r: &mut rand::rngs::StdRng| Duration::from_micros(r.random_range(50..3_000));
            let (there, back) = (usual(r), usual(r));
            let mut fate = Fate {
                there,
                back,
                arrives: true,
                answered: true,
                hangs: r.random(),
                refused: false,
                repeated: None,
            };
            let now = self.history.now();
            let mut cut_until = self.cut_until.lock().unwrap_or_else(|e| e.into_inner());
            if r.random_range(0..1_000) < percent {
                *cut_until = now.after(Duration::from_millis(r.random_range(100..5_000)));
            }
            if percent > 0 && now < *cut_until {
                fate.arrives = false;
            } else if r.random_range(0..100) < percent {
                let long = Duration::from_millis(r.random_range(5..LONGEST.as_millis() as u64));
                let middling = Duration::from_millis(r.random_range(5..1_500));
                match r.random_range(0..9) {
                    0 => fate.there = middling,
                    1 => fate.back = middling,
                    2 => fate.there = long,
                    3 => fate.arrives = false,
                    4 => fate.answered = false,
                    5 => fate.refused = true,
                    6 => fate.repeated = Some(long),
                    7 => fate.back = Duration::from_millis(r.random_range(100..4_000)),
                    _ => (fate.there, fate.back) = (middling, middling),
                }
            }
            fate
        })
    }

    /// Sends `request`, which `apply` turns into an answer at the store.
    async fn call<R, T, F, Fut>(
        &self,
        request: R,
        may_repeat: bool,
        apply: F,
    ) -> Result<T, StoreError>
    where
        R: Clone + Send + 'static,
        T: Send + 'static,
        F: Fn(MemoryStore, R) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        let fate = self.fate();
        if fate.refused {
            tokio::time::sleep(fate.there).await;
            return Err(StoreError::unavailable("refused by the simulation"));
        }
        let (reply, answer) = oneshot::channel();
        let (store, hangs) = (self.store.clone(), fate.hangs);
        tokio::spawn(async move {
            tokio::time::sleep(fate.there).await;
            if !fate.arrives {
                return;
            }
            let outcome = apply(store.clone(), request.clone()).await;
            if let (Some(later), true) = (fate.repeated, may_repeat) {
                tokio::time::sleep(later).await;
                let _ = apply(store, request).await;
            }
            tokio::time::sleep(fate.back).await;
            if fate.answered {
                let _ = reply.send(outcome);
            }
        });
        match answer.await {
            Ok(outcome) => Ok(outcome),
            Err(_) if hangs => std::future::pending().await,
            Err(_) => Err(StoreError::unknown_outcome("cut by the simulation")),
        }
    }
}

#[async_trait]
impl LeaseBackend for Network {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        let history = Arc::clone(&self.history);
        // Never repeated: where a transport repeats acquisitions, every one
        // must be abandoned (1y1), and this network is not of that kind.
        self.call(
            request.clone(),
            false,
            move |store, request: AcquireRequest| {
                let history = Arc::clone(&history);
                async move {
                    let outcome = store.acquire(&request).await;
                    if let Ok(AcquireOutcome::Granted(granted)) = &outcome {
                        history.store_granted(&request.key, request.owner, granted.token);
                    }
                    outcome
                }
            },
        )
        .await?
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        self.call(
            (key.clone(), owner),
            true,
            |store, (key, owner)| async move { store.abandon(&key, owner).await },
        )
        .await?
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        self.call(
            request.clone(),
            true,
            |store, request: RenewRequest| async move { store.renew(&request).await },
        )
        .await?
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let sent = self
            .call(requests.to_vec(), true, |store, requests: Vec<RenewRequest>| async move {
                store.renew_many(&requests).await
            })
            .await;
        sent.unwrap_or_else(|error| requests.iter().map(|_| Err(error.clone())).collect())
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        self.call(
            (key.clone(), owner, token),
            true,
            |store, (key, owner, token)| async move { store.release(&key, owner, token).await },
        )
        .await?
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        self.store.fence(key, at_least, when).await
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        self.store.inspect(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.store.list(prefix)
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        let fate = self.fate();
        if fate.refused {
            return Err(StoreError::unavailable("refused by the simulation"));
        }
        let dice = self.dice.clone();
        let hints = self.store.watch(key).await?;
        // Some hints are lost; sometimes the subscription ends.
        Ok(hints
            .filter_map(move |hint| {
                let kept = dice.roll(|r| r.random_range(0..100) < 70).then_some(hint);
                async move { kept }
            })
            .chain(stream::pending())
            .take(if fate.answered { usize::MAX } else { 1 })
            .boxed())
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        self.store.ping().await
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.store.diagnose(ttl).await
    }
}
