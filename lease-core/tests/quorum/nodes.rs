//! Nodes that do as a script says, and a quorum of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::{
    AcquireOutcome, AcquireRequest, Clock, Diagnosis, FenceWhen, Guarantees, Key, KeyState, Label,
    LeaseBackend, MemoryStore, Moment, Owner, Quorum, QuorumRules, RefusedReason, ReleaseOutcome,
    RenewOutcome, RenewRequest, Session, StoreError, Token, TokenRule, Ttl,
};
use tokio::time::Instant;

/// What a node does with a request.
pub(crate) const WELL: u64 = 0;
pub(crate) const AWAY: u64 = 1;
pub(crate) const SILENT: u64 = 2;
pub(crate) const QUARANTINE: u64 = 3;
/// From here on: answers so many milliseconds late.
pub(crate) const LATE: u64 = 10;

#[derive(Debug)]
pub(crate) struct TrueClock(pub(crate) Instant);

#[async_trait]
impl Clock for TrueClock {
    fn now(&self) -> Moment {
        Moment::START.after(self.0.elapsed())
    }

    async fn sleep_until(&self, until: Moment) {
        tokio::time::sleep(until.since(self.now())).await;
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) store: MemoryStore,
    mood: Arc<AtomicU64>,
}

impl Node {
    pub(crate) fn new(clock_ahead: u64) -> Self {
        let clock = Arc::new(TrueClock(Instant::now()));
        let epoch = Duration::from_secs(1_800_000_000 + clock_ahead);
        Self {
            store: MemoryStore::with_clock(clock, epoch),
            mood: Arc::default(),
        }
    }

    pub(crate) fn is(&self, mood: u64) {
        self.mood.store(mood, Ordering::Relaxed);
    }

    async fn waits(&self) -> Result<(), StoreError> {
        match self.mood.load(Ordering::Relaxed) {
            AWAY => Err(StoreError::unavailable("away")),
            SILENT => std::future::pending().await,
            late if late >= LATE => {
                tokio::time::sleep(Duration::from_millis(late)).await;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl LeaseBackend for Node {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.waits().await?;
        if self.mood.load(Ordering::Relaxed) == QUARANTINE {
            let remaining = Duration::from_secs(30);
            return Ok(AcquireOutcome::Refused(RefusedReason::Quarantine {
                remaining,
            }));
        }
        self.store.acquire(request).await
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        self.waits().await?;
        self.store.abandon(key, owner).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        self.waits().await?;
        self.store.renew(request).await
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        match self.waits().await {
            Ok(()) => self.store.renew_many(requests).await,
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        self.waits().await?;
        self.store.release(key, owner, token).await
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        self.waits().await?;
        self.store.fence(key, at_least, when).await
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        self.waits().await?;
        self.store.inspect(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.store.list(prefix)
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        self.waits().await?;
        self.store.watch(key).await
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        self.store.ping().await
    }

    fn guarantees(&self) -> Guarantees {
        self.store.guarantees()
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        self.waits().await?;
        self.store.diagnose(ttl).await
    }
}

pub(crate) struct World {
    pub(crate) nodes: Vec<Node>,
    pub(crate) quorum: Quorum,
}

impl World {
    /// Nodes whose clocks are ahead by so many seconds.
    pub(crate) fn new(ahead: &[u64], rules: QuorumRules) -> Self {
        let nodes: Vec<_> = ahead.iter().map(|ahead| Node::new(*ahead)).collect();
        Self::over(nodes, rules)
    }

    fn over(nodes: Vec<Node>, rules: QuorumRules) -> Self {
        let named = nodes.iter().enumerate().map(|(i, node)| {
            let node: Arc<dyn LeaseBackend> = Arc::new(node.clone());
            (format!("n{}", i + 1), node)
        });
        let quorum = Quorum::broken(named, rules, 7).unwrap();
        Self { nodes, quorum }
    }

    /// Another client of these nodes, which knows nothing of them yet.
    pub(crate) fn newcomer(&self, rules: QuorumRules) -> Self {
        Self::over(self.nodes.clone(), rules)
    }

    pub(crate) async fn acquire(&self, owner: u8) -> Result<AcquireOutcome, StoreError> {
        self.quorum.acquire(&ask(owner)).await
    }

    pub(crate) async fn token(&self, owner: u8) -> Token {
        match self.acquire(owner).await {
            Ok(AcquireOutcome::Granted(granted)) => granted.token,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn renew(&self, owner: u8, token: Token) -> Result<RenewOutcome, StoreError> {
        self.quorum.renew(&renewal(owner, token)).await
    }

    pub(crate) async fn release(&self, owner: u8, token: Token) -> ReleaseOutcome {
        self.quorum.release(&key(), of(owner), token).await.unwrap()
    }

    pub(crate) async fn holder(&self, node: usize) -> Option<Token> {
        let state = self.nodes[node].store.inspect(&key()).await.unwrap();
        state.holder.map(|holder| holder.token)
    }
}

pub(crate) fn key() -> Key {
    Key::new("k").unwrap()
}

pub(crate) fn of(owner: u8) -> Owner {
    Owner::from_bytes([owner; 16])
}

pub(crate) fn ask(owner: u8) -> AcquireRequest {
    AcquireRequest {
        key: key(),
        owner: of(owner),
        ttl: Ttl::new(Duration::from_secs(20)).unwrap(),
        label: Label::new("worker").unwrap(),
        rule: TokenRule::NEXT,
        waits: None,
    }
}

pub(crate) fn renewal(owner: u8, token: Token) -> RenewRequest {
    RenewRequest {
        key: key(),
        owner: of(owner),
        token,
        ttl: ask(owner).ttl,
    }
}
