//! The store: a quorum whose nodes are Redis servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::stream::{BoxStream, FuturesUnordered, StreamExt};
use lease_core::{
    AcquireOutcome, AcquireRequest, AdmitError, Diagnosis, FenceWhen, Gate, Guarantees,
    InvalidInput, Key, KeyState, LeaseBackend, Owner, Quorum, QuorumGate, ReleaseOutcome,
    RenewOutcome, RenewRequest, Session, StoreError, StoreErrorKind, Token, Ttl,
};

use super::doctor;
use crate::RedisStore;

/// When it is clear that there is no majority, the other nodes get so much time
/// to say what ails them.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A store of leases on a quorum of independent Redis servers.
///
/// Cheap to clone; a clone is the same client. It is a [`Gate`] too: a
/// [`QuorumGate`] over those of its nodes.
#[derive(Clone)]
pub struct RedlockStore {
    inner: Arc<Inner>,
}

struct Inner {
    nodes: Vec<(String, RedisStore)>,
    quorum: Quorum,
    gate: QuorumGate,
    quarantine: Ttl,
}

impl RedlockStore {
    pub(super) fn new(
        nodes: Vec<(String, RedisStore)>,
        quarantine: Ttl,
    ) -> Result<Self, StoreError> {
        let backends = nodes.iter();
        let backends = backends.map(|(name, store)| {
            let backend: Arc<dyn LeaseBackend> = Arc::new(store.clone());
            (name.as_str(), backend)
        });
        let quorum = Quorum::new(backends)?;
        let gates = nodes.iter().map(|(name, store)| {
            let gate: Arc<dyn Gate> = Arc::new(store.clone());
            (name.as_str(), gate)
        });
        let gate = QuorumGate::new(gates)?;
        Ok(Self {
            inner: Arc::new(Inner {
                nodes,
                quorum,
                gate,
                quarantine,
            }),
        })
    }

    pub(super) fn nodes(&self) -> &[(String, RedisStore)] {
        &self.inner.nodes
    }

    pub(super) fn quorum(&self) -> &Quorum {
        &self.inner.quorum
    }

    /// Until a majority is connected.
    pub(super) async fn connect(&self) -> Result<(), StoreError> {
        let (nodes, majority) = (self.nodes(), self.inner.quorum.majority());
        let spare = nodes.len() - majority;
        let mut tries = FuturesUnordered::new();
        for (i, (_, node)) in nodes.iter().enumerate() {
            tries.push(node.connect().map(move |outcome| (i, outcome)));
        }
        let (mut connected, mut errors) = (0, vec![None; nodes.len()]);
        while let Some((i, outcome)) = tries.next().await {
            match outcome {
                Ok(()) => connected += 1,
                Err(error) => errors[i] = Some(error),
            }
            if connected >= majority {
                return Ok(());
            }
            if errors.iter().flatten().count() > spare {
                break;
            }
        }
        let rest = async {
            while let Some((i, outcome)) = tries.next().await {
                errors[i] = outcome.err();
            }
        };
        let _ = tokio::time::timeout(LAST_WORDS, rest).await;
        Err(self.out_of_reach(&errors))
    }

    fn out_of_reach(&self, errors: &[Option<StoreError>]) -> StoreError {
        let of = |kind| errors.iter().flatten().filter(|e| e.kind() == kind).count();
        let (majority, count) = (self.inner.quorum.majority(), self.nodes().len());
        let kind = if of(StoreErrorKind::InvalidInput) > 0 {
            StoreErrorKind::InvalidInput
        } else if of(StoreErrorKind::Refusing) > count - majority {
            StoreErrorKind::Refusing
        } else {
            StoreErrorKind::Unavailable
        };
        // Nodes that say the same are named together.
        let mut said: Vec<(String, Vec<&str>)> = Vec::new();
        for ((name, _), error) in self.nodes().iter().zip(errors) {
            let Some(error) = error else { continue };
            let words = error.to_string();
            match said.iter_mut().find(|(same, _)| *same == words) {
                Some((_, names)) => names.push(name),
                None => said.push((words, vec![name])),
            }
        }
        let said: Vec<_> = said
            .iter()
            .map(|(words, names)| format!("{}: {words}", names.join(", ")))
            .collect();
        let said = said.join("; ");
        StoreError::new(
            kind,
            format!("open needs {majority} of {count} nodes ({said})"),
        )
    }

    fn check_ttl(&self, ttl: Ttl) -> Result<(), StoreError> {
        if ttl > self.inner.quarantine {
            return Err(InvalidInput::TtlOutOfRange {
                ttl: ttl.get(),
                min: Ttl::MIN.get(),
                max: self.inner.quarantine.get(),
            }
            .into());
        }
        Ok(())
    }
}

#[async_trait]
impl LeaseBackend for RedlockStore {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.check_ttl(request.ttl)?;
        self.inner.quorum.acquire(request).await
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        self.inner.quorum.abandon(key, owner).await
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        self.check_ttl(request.ttl)?;
        self.inner.quorum.renew(request).await
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        self.inner.quorum.renew_many(requests).await
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        self.inner.quorum.release(key, owner, token).await
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        self.inner.quorum.fence(key, at_least, when).await
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        self.inner.quorum.inspect(key).await
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        self.inner.quorum.list(prefix)
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        self.inner.quorum.watch(key).await
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        self.inner.quorum.ping().await
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.quorum.guarantees()
    }

    /// The findings of the quorum and of each node, those that several nodes
    /// have in common only once, and what shows only when the nodes are compared.
    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        doctor::diagnose(self, ttl, self.inner.quarantine).await
    }
}

#[async_trait]
impl Gate for RedlockStore {
    async fn admit(&self, resource: &Key, token: Token) -> Result<(), AdmitError> {
        self.inner.gate.admit(resource, token).await
    }
}

impl fmt::Debug for RedlockStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedlockStore")
            .field("quorum", &self.inner.quorum)
            .finish_non_exhaustive()
    }
}
