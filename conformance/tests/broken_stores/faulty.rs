//! A store with one deliberate fault, around the reference store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{
    AcquireOutcome, AcquireRequest, Diagnosis, FenceWhen, Guarantees, Key, KeyState, LeaseBackend,
    LostCause, MemoryStore, Owner, ReleaseOutcome, RenewOutcome, RenewRequest, Session, StoreError,
    Token, TokenRule, Ttl,
};
use tokio::sync::Semaphore;

use crate::fault::Fault;

/// How many calls the leaking client takes at a time.
const CONNECTIONS: usize = 16;

#[derive(Debug)]
pub(crate) struct Faulty {
    /// Another one after a restart without data.
    inner: Arc<Mutex<MemoryStore>>,
    fault: Fault,
    claims: Guarantees,
    /// Who was granted what last; shared by all clients.
    grants: Arc<Mutex<HashMap<Key, (Owner, Token)>>>,
    /// This client's own.
    connections: Semaphore,
}

/// What the clients of one faulty store share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) inner: Arc<Mutex<MemoryStore>>,
    pub(crate) fault: Fault,
    pub(crate) claims: Guarantees,
    pub(crate) grants: Arc<Mutex<HashMap<Key, (Owner, Token)>>>,
}

impl Faulty {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self {
            inner: Arc::clone(&shared.inner),
            fault: shared.fault,
            claims: shared.claims.clone(),
            grants: Arc::clone(&shared.grants),
            connections: Semaphore::new(CONNECTIONS),
        }
    }

    fn inner(&self) -> MemoryStore {
        self.inner.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    fn grants(&self) -> MutexGuard<'_, HashMap<Key, (Owner, Token)>> {
        self.grants.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A client that loses a connection with every call that is dropped.
    async fn connection(&self) {
        if self.is(Fault::LeaksConnections) {
            if let Ok(permit) = self.connections.acquire().await {
                permit.forget();
            }
            tokio::task::yield_now().await;
        }
    }

    fn give_back(&self) {
        if self.is(Fault::LeaksConnections) {
            self.connections.add_permits(1);
        }
    }

    fn refuses_ttl(&self, ttl: Ttl) -> Result<(), StoreError> {
        let range = self.claims.ttl;
        if self.is(Fault::None) && (ttl.get() < range.min || ttl.get() > range.max) {
            return Err(lease_core::InvalidInput::TtlOutOfRange {
                ttl: ttl.get(),
                min: range.min,
                max: range.max,
            }
            .into());
        }
        if self.is(Fault::RefusesLongTtls) && ttl.get() > Duration::from_secs(86_400) {
            return Err(StoreError::refusing("too long"));
        }
        Ok(())
    }

    fn refuses_key(&self, key: &Key) -> Result<(), StoreError> {
        let bytes = key.as_str().len();
        if self.is(Fault::None) && bytes > self.claims.max_key_bytes {
            return Err(lease_core::InvalidInput::KeyTooLong { bytes }.into());
        }
        Ok(())
    }

    async fn rule(&self, request: &AcquireRequest) -> TokenRule {
        match (self.fault, request.rule) {
            (Fault::RandomTokens, TokenRule::Next { .. }) => {
                let random = request.owner.as_bytes()[..6]
                    .iter()
                    .fold(1, |n, b| n << 8 | u64::from(*b));
                Token::new(random).map_or(request.rule, TokenRule::Exactly)
            }
            (Fault::CountsOneAbove, TokenRule::Exactly(token)) => {
                TokenRule::Exactly(token.next().unwrap_or(token))
            }
            (Fault::IgnoresFloor, TokenRule::Next { .. }) => TokenRule::NEXT,
            (_, rule) => rule,
        }
    }

    /// Tokens that went through a double printed with fifteen digits.
    fn printed(&self, token: Token) -> Token {
        if !self.is(Fault::RoundsTokens) || token.get() < 1_000_000_000_000_000 {
            return token;
        }
        Token::new(token.get() / 10 * 10).unwrap_or(token)
    }
}

#[async_trait]
impl LeaseBackend for Faulty {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.refuses_ttl(request.ttl)?;
        self.refuses_key(&request.key)?;
        let request = AcquireRequest {
            key: self.fault.stored_key(&request.key),
            ttl: self.fault.stored_ttl(request.ttl),
            rule: self.rule(request).await,
            ..request.clone()
        };
        self.connection().await;
        if self.is(Fault::ReadsThenWrites) {
            let state = self.inner().inspect(&request.key).await?;
            tokio::task::yield_now().await;
            if let Some(holder) = state.holder {
                let last = self.grants().get(&request.key).copied();
                if last.is_none_or(|(owner, _)| owner != request.owner) {
                    return Ok(AcquireOutcome::Held(holder));
                }
            }
        }
        let outcome = self.inner().acquire(&request).await;
        self.give_back();
        let mut outcome = outcome?;
        match &mut outcome {
            AcquireOutcome::Granted(granted) => {
                self.grants()
                    .insert(request.key.clone(), (request.owner, granted.token));
                granted.token = self.printed(granted.token);
            }
            AcquireOutcome::Held(holder) => {
                holder.token = self.printed(holder.token);
                if self.is(Fault::HidesTheHolder) {
                    holder.label = lease_core::Label::EMPTY;
                }
                if self.is(Fault::InventsRemainingTime) {
                    holder.remaining += Duration::from_secs(30);
                }
            }
            AcquireOutcome::Refused(_) => {}
        }
        Ok(outcome)
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        if self.is(Fault::DropsAbandon) {
            return Ok(());
        }
        self.connection().await;
        if self.is(Fault::AbandonsAnybody) {
            let last = self.grants().get(key).copied();
            if let Some((other, _)) = last {
                self.inner().abandon(key, other).await?;
            }
        }
        if self.is(Fault::MarksAbandonedKeys) {
            self.inner()
                .fence(key, Token::MIN, FenceWhen::AtExpiry)
                .await?;
        }
        let done = self
            .inner()
            .abandon(&self.fault.stored_key(key), owner)
            .await;
        self.give_back();
        done
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        self.refuses_ttl(request.ttl)?;
        self.refuses_key(&request.key)?;
        let mut request = RenewRequest {
            key: self.fault.stored_key(&request.key),
            ttl: self.fault.stored_ttl(request.ttl),
            ..request.clone()
        };
        let last = self.grants().get(&request.key).copied();
        match (self.fault, last) {
            (Fault::RenewsByKey, Some((owner, token))) => {
                (request.owner, request.token) = (owner, token);
            }
            (Fault::RenewsByOwner, Some((owner, token))) if owner == request.owner => {
                request.token = token;
            }
            (Fault::AddsUpRenewals, _) => {
                let holder = self.inner().inspect(&request.key).await?.holder;
                let left = holder.map_or(Duration::ZERO, |h| h.remaining);
                request.ttl = Ttl::new(request.ttl.get() + left).unwrap_or(request.ttl);
            }
            _ => {}
        }
        self.connection().await;
        let outcome = self.inner().renew(&request).await;
        self.give_back();
        match outcome {
            Ok(RenewOutcome::Lost(LostCause::Released)) if self.is(Fault::RenewsReleased) => {
                Ok(RenewOutcome::Renewed)
            }
            Ok(RenewOutcome::Lost(LostCause::Unknown)) if self.is(Fault::FailsOnUnknownKeys) => {
                Err(StoreError::refusing("no such row"))
            }
            outcome => outcome,
        }
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let mut outcomes = Vec::new();
        for (i, request) in requests.iter().enumerate() {
            if self.is(Fault::RenewsHundredOnly) && i >= 100 {
                outcomes.push(Ok(RenewOutcome::Renewed));
            } else {
                outcomes.push(self.renew(request).await);
            }
        }
        match self.fault {
            Fault::ReversesRenewals => outcomes.reverse(),
            Fault::AnswersOnceMore => outcomes.push(Ok(RenewOutcome::Renewed)),
            Fault::MergesRenewals => outcomes.dedup_by_key(|o| format!("{o:?}")),
            Fault::AllOrNothingRenewals
                if outcomes
                    .iter()
                    .any(|o| !matches!(o, Ok(RenewOutcome::Renewed))) =>
            {
                let lost = RenewOutcome::Lost(LostCause::Unknown);
                outcomes.iter_mut().for_each(|o| *o = Ok(lost));
            }
            _ => {}
        }
        outcomes
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        let key = self.fault.stored_key(key);
        let last = self.grants().get(&key).copied();
        let (owner, token) = match (self.fault, last) {
            (Fault::ReleasesByKey, Some(last)) => last,
            (Fault::ReleasesByOwner, Some((o, t))) if o == owner => (owner, t),
            _ => (owner, token),
        };
        self.connection().await;
        let outcome = self.inner().release(&key, owner, token).await;
        self.give_back();
        match outcome {
            Ok(_) if self.is(Fault::AlwaysReleased) => Ok(ReleaseOutcome::Released),
            outcome => outcome,
        }
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        let (at_least, when) = match self.fault {
            Fault::ClampsFences => (at_least.min(Token::MAX_FENCE), when),
            Fault::NeverImmediate => (at_least, FenceWhen::AtExpiry),
            Fault::FencesOneAbove => (at_least.next().unwrap_or(at_least), when),
            _ => (at_least, when),
        };
        self.inner()
            .fence(&self.fault.stored_key(key), at_least, when)
            .await
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        self.connection().await;
        let state = self.inner().inspect(&self.fault.stored_key(key)).await;
        self.give_back();
        let mut state = state?;
        state.key = key.clone();
        state.high_water = state.high_water.map(|token| self.printed(token));
        if self.is(Fault::ForgetsFreeMarks) && state.holder.is_none() {
            state.high_water = None;
        }
        if self.is(Fault::HidesBlocks) {
            state.blocked_for = None;
        }
        Ok(state)
    }

    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        let wanted = prefix.to_owned();
        let fault = self.fault;
        let all = || self.inner().list("").filter_map(|s| async { s.ok() });
        match fault {
            Fault::CannotList => {
                let refusal = StoreError::refusing("this store cannot list");
                stream::iter([Err(refusal)]).boxed()
            }
            Fault::ListsHeldOnly => all()
                .filter(move |s| {
                    let fits = s.holder.is_some() && s.key.as_str().starts_with(&wanted);
                    std::future::ready(fits)
                })
                .map(Ok)
                .boxed(),
            Fault::ListsAnyCase => all()
                .filter(move |s| {
                    let key = s.key.as_str().to_lowercase();
                    std::future::ready(key.starts_with(&wanted.to_lowercase()))
                })
                .map(Ok)
                .boxed(),
            Fault::ListsOnePage => self.inner().list(prefix).take(1000).boxed(),
            Fault::ListsTwiceAtPages => self
                .inner()
                .list(prefix)
                .enumerate()
                .flat_map(|(i, s)| {
                    let times = if i % 100 == 99 { 2 } else { 1 };
                    stream::iter(std::iter::repeat_n(s, times))
                })
                .boxed(),
            _ => self.inner().list(prefix),
        }
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        let hints = self.inner().watch(&self.fault.stored_key(key)).await?;
        Ok(match self.fault {
            Fault::SwallowsHints => stream::pending().boxed(),
            Fault::EndsHints => stream::empty().boxed(),
            Fault::HintsOnce => hints.take(1).chain(stream::pending()).boxed(),
            _ => hints,
        })
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        Ok(Session::NONE)
    }

    fn guarantees(&self) -> Guarantees {
        let mut claims = self.claims.clone();
        if self.is(Fault::ClaimsByClient) {
            claims.store = format!("{:p}", self).into();
        }
        claims
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        assert!(!self.is(Fault::Panics), "a deliberate panic");
        self.inner().diagnose(ttl).await
    }
}
