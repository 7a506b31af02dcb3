//! A queue's claims as leases: what the core renews and releases, the store extends
//! and settles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{
    AcquireOutcome, AcquireRequest, Clock, Diagnosis, FenceWhen, Guarantees, InvalidInput, Key,
    KeyState, Lease, LeaseBackend, LostCause, Moment, Owner, ReleaseOutcome, RenewOutcome,
    RenewRequest, Session, StoreError, Token, Ttl,
};

use crate::item::ClaimRef;
use crate::keyed::unanswered;
use crate::measure;
use crate::name::{Lane, QueueName};
use crate::store::{MAX_BATCH, QueueStore, Settle, Settled};

/// Kept beyond the end of a claim, for requests that are under way.
const LINGER: Duration = Duration::from_secs(60);

/// The key of a lane's leases: different for different lanes. It stands in events and
/// errors, so it is what people call the lane; no store has it.
pub(crate) fn key_of(lane: &Lane) -> Result<Key, InvalidInput> {
    Key::new(lane.to_string())
}

/// Back to its place, as if nobody had tried.
pub(crate) fn give_back() -> Settle {
    Settle::Retry {
        delay: Duration::ZERO,
        counts: false,
        error: None,
    }
}

/// One claim, from its grant to its end.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) claim: ClaimRef,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// What its release does.
    settle: Settle,
    /// The settle that was sent first, and whether there were others.
    sent: Option<Settle>,
    others: bool,
    /// Somebody waits for a settle.
    settling: bool,
    ended: Option<Settled>,
    /// After this nobody asks for it any more.
    until: Moment,
}

impl Entry {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// From now on its release does this, whoever gives it up.
    pub(crate) fn set(&self, settle: Settle) {
        self.state().settle = settle;
    }

    /// As [`set`](Self::set); somebody waits for it, and a renewal that finds the claim
    /// settled says nothing of a loss. Not for a claim that has ended otherwise: how.
    pub(crate) fn begin(&self, settle: Settle) -> Result<(), Settled> {
        let mut state = self.state();
        if let Some(ended) = state.ended {
            return Err(state.own(&settle, ended));
        }
        state.sends(&settle);
        state.settle = settle;
        state.settling = true;
        Ok(())
    }

    /// What the store's answer to this settle says of it.
    pub(crate) fn meant(&self, settle: &Settle, answer: Settled) -> Settled {
        self.state().own(settle, answer)
    }

    /// Whether the store has said that it was settled as its holder wanted.
    pub(crate) fn is_settled(&self) -> bool {
        matches!(self.state().ended, Some(Settled::Done | Settled::Before))
    }

    /// Nobody waits any more, and nobody knows: its release goes on with it.
    pub(crate) fn leave(&self) {
        self.state().settling = false;
    }

    /// Nobody waits any more. If it was not settled, it is to be given back.
    pub(crate) fn end(&self, ended: Option<Settled>) {
        let mut state = self.state();
        state.settling = false;
        match ended {
            Some(_) => state.ended = ended,
            None => state.settle = give_back(),
        }
    }
}

impl State {
    fn sends(&mut self, settle: &Settle) {
        match &self.sent {
            None => self.sent = Some(settle.clone()),
            Some(sent) => self.others |= sent != settle,
        }
    }

    /// The store tells that this claim was settled before, and not how: it was so, if
    /// nothing else was ever sent.
    fn own(&self, settle: &Settle, answer: Settled) -> Settled {
        let alone = !self.others && self.sent.as_ref().is_none_or(|sent| sent == settle);
        match answer {
            Settled::Before if alone => Settled::Before,
            // In this claim's records, by another settle.
            Settled::Done if self.ended.is_some() && !alone => Settled::Lost(LostCause::Released),
            Settled::Before => Settled::Lost(LostCause::Released),
            answer => answer,
        }
    }
}

type Grant = (Key, Owner, Token);

#[derive(Debug, Default)]
struct Entries {
    by_grant: HashMap<Grant, Arc<Entry>>,
    /// So many are looked through for old ones.
    sweep_at: usize,
}

/// The claims of one queue's client.
#[derive(Debug)]
pub(crate) struct ClaimLeases {
    store: Arc<dyn QueueStore>,
    queue: QueueName,
    clock: Arc<dyn Clock>,
    entries: Mutex<Entries>,
}

impl ClaimLeases {
    pub(crate) fn new(store: Arc<dyn QueueStore>, queue: QueueName, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            queue,
            clock,
            entries: Mutex::default(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn until(&self, ttl: Ttl) -> Moment {
        self.clock.now().after(2 * ttl.get() + LINGER)
    }

    /// Makes a claim known; dropping its lease gives the item back, uncounted.
    pub(crate) fn register(&self, key: &Key, claim: ClaimRef, ttl: Ttl) -> Arc<Entry> {
        let grant = (key.clone(), claim.owner, claim.token);
        let entry = Arc::new(Entry {
            claim,
            state: Mutex::new(State {
                settle: give_back(),
                sent: None,
                others: false,
                settling: false,
                ended: None,
                until: self.until(ttl),
            }),
        });
        let mut entries = self.entries();
        if entries.by_grant.len() >= entries.sweep_at {
            let now = self.clock.now();
            entries.by_grant.retain(|_, e| now < e.state().until);
            entries.sweep_at = (2 * entries.by_grant.len()).max(64);
        }
        entries.by_grant.insert(grant, Arc::clone(&entry));
        entry
    }

    fn find(&self, grant: &Grant) -> Option<Arc<Entry>> {
        self.entries().by_grant.get(grant).cloned()
    }

    /// Forgets a claim that was settled, whose lease has ended.
    pub(crate) fn settled(&self, lease: &Lease) {
        self.forget(&(lease.key().clone(), lease.owner(), lease.token()));
    }

    fn forget(&self, grant: &Grant) {
        self.entries().by_grant.remove(grant);
    }

    /// What is known of a claim without asking; else the claim, to ask for.
    fn known(
        &self,
        request: &RenewRequest,
    ) -> Result<Arc<Entry>, Result<RenewOutcome, StoreError>> {
        let grant = (request.key.clone(), request.owner, request.token);
        let Some(entry) = self.find(&grant) else {
            return Err(Ok(RenewOutcome::Lost(LostCause::Unknown)));
        };
        let ended = {
            let mut state = entry.state();
            state.until = self.until(request.ttl).max(state.until);
            state.ended
        };
        match ended {
            None => Ok(entry),
            Some(Settled::Lost(cause)) => {
                self.forget(&grant);
                Err(Ok(RenewOutcome::Lost(cause)))
            }
            // Its handle is about to end it, and was told.
            Some(_) => Err(Err(being_settled())),
        }
    }

    async fn extend(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let known: Vec<_> = requests.iter().map(|request| self.known(request)).collect();
        let asks = |(known, request): (&Result<Arc<Entry>, _>, &RenewRequest)| {
            let entry = known.as_ref().ok()?;
            Some((entry.claim.clone(), Settle::Extend(request.ttl)))
        };
        let batch: Vec<_> = known.iter().zip(requests).filter_map(asks).collect();
        let mut settled = match batch.is_empty() {
            true => Vec::new(),
            false => self.store.settle(&self.queue, &batch).await,
        }
        .into_iter();
        let outcome = |known: Result<Arc<Entry>, _>| match known {
            Err(outcome) => outcome,
            Ok(entry) => extended(&entry, settled.next().unwrap_or_else(|| Err(unanswered()))),
        };
        known.into_iter().map(outcome).collect()
    }
}

fn extended(
    entry: &Entry,
    settled: Result<Settled, StoreError>,
) -> Result<RenewOutcome, StoreError> {
    let cause = match settled? {
        Settled::Done => return Ok(RenewOutcome::Renewed),
        Settled::Before => LostCause::Released,
        Settled::Lost(cause) => cause,
    };
    let state = entry.state();
    if state.settling || state.ended.is_some() {
        // By its own holder, who is told by that answer.
        return Err(being_settled());
    }
    Ok(RenewOutcome::Lost(cause))
}

fn being_settled() -> StoreError {
    StoreError::unavailable("the claim is being settled")
}

/// Only claims of this client are leases of it.
fn not_here() -> StoreError {
    StoreError::refusing("a queue's claims are made by the queue: ask its store for keys")
}

#[async_trait]
impl LeaseBackend for ClaimLeases {
    async fn acquire(&self, _: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        Err(not_here())
    }

    async fn abandon(&self, _: &Key, owner: Owner) -> Result<(), StoreError> {
        self.store.abandon(&self.queue, None, owner).await
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

    /// Does what the claim's holder wanted last, or gives the item back.
    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        let grant = (key.clone(), owner, token);
        let Some(entry) = self.find(&grant) else {
            return Ok(ReleaseOutcome::NotHeld);
        };
        let (settle, ended) = {
            let mut state = entry.state();
            let settle = state.settle.clone();
            if state.ended.is_none() {
                state.sends(&settle);
            }
            (settle, state.ended)
        };
        let settled = match ended {
            Some(ended) => ended,
            None => {
                let kind = measure::kind(&settle);
                let batch = [(entry.claim.clone(), settle)];
                let settled = self.store.settle(&self.queue, &batch).await;
                let settled = settled.into_iter().next().ok_or_else(unanswered)??;
                measure::settled(&self.queue, kind, settled);
                settled
            }
        };
        entry.state().ended = Some(settled);
        Ok(match settled {
            Settled::Done | Settled::Before => {
                self.forget(&grant);
                ReleaseOutcome::Released
            }
            // The cause is asked for by a renewal.
            Settled::Lost(_) => ReleaseOutcome::NotHeld,
        })
    }

    async fn fence(&self, _: &Key, _: Token, _: FenceWhen) -> Result<Token, StoreError> {
        Err(not_here())
    }

    async fn inspect(&self, _: &Key) -> Result<KeyState, StoreError> {
        Err(not_here())
    }

    fn list(&self, _: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        stream::once(async { Err(not_here()) }).boxed()
    }

    async fn watch(&self, _: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        Err(not_here())
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

#[cfg(test)]
mod tests;
