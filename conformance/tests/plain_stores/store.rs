//! A plain store: a map under a lock, tokens that count from one, no listing.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_conformance::{Fixture, FixtureError, Store};
use lease_core::{
    AcquireOutcome, AcquireRequest, CrashRelease, Diagnosis, Exclusion, FenceWhen, Granted,
    Guarantees, Holder, InvalidInput, Key, KeyState, Label, LeaseBackend, LostCause, Owner,
    RefusedReason, ReleaseOutcome, RenewOutcome, RenewRequest, Session, StoreError, Survives,
    Token, TokenRule, Ttl, TtlRange, WakeUps, check_fence,
};
use tokio::sync::watch;

/// In which of the ways that the contract leaves open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    /// Keeps and tells times by the second.
    pub(crate) coarse: bool,
    /// Hints, and ends each stream after one hint.
    pub(crate) one_hint: bool,
    /// Takes short keys only.
    pub(crate) narrow: bool,
    /// Claims what nobody can show: none of it is true.
    pub(crate) boasts: bool,
    /// Refuses an owner whose grant was released or expired.
    pub(crate) strict: bool,
}

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Grant {
    owner: Owner,
    token: Token,
    label: Label,
    since: Instant,
    until: Instant,
    revoked: bool,
}

#[derive(Debug, Default)]
struct Row {
    mark: Option<Token>,
    grant: Option<Grant>,
    refused: HashMap<Owner, RefusedReason>,
    expired: HashSet<Owner>,
    hints: Option<watch::Sender<()>>,
}

impl Row {
    fn live(&mut self, now: Instant) -> Option<&mut Grant> {
        if let Some(gone) = self.grant.take_if(|grant| grant.until <= now) {
            self.expired.insert(gone.owner);
        }
        self.grant.as_mut()
    }

    fn free(&mut self) {
        self.grant = None;
        if let Some(hints) = &self.hints {
            hints.send_replace(());
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PlainStore {
    kind: Kind,
    rows: Arc<Mutex<HashMap<Key, Row>>>,
}

impl PlainStore {
    fn rows(&self) -> MutexGuard<'_, HashMap<Key, Row>> {
        self.rows.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn takes(&self, key: &Key, ttl: Ttl) -> Result<(), StoreError> {
        let (claims, bytes) = (self.guarantees(), key.as_str().len());
        if bytes > claims.max_key_bytes {
            return Err(InvalidInput::KeyTooLong { bytes }.into());
        }
        let (min, max) = (claims.ttl.min, claims.ttl.max);
        if ttl.get() < min || ttl.get() > max {
            return Err(InvalidInput::TtlOutOfRange {
                ttl: ttl.get(),
                min,
                max,
            }
            .into());
        }
        Ok(())
    }

    /// Never less than the TTL.
    fn kept(&self, ttl: Ttl) -> Duration {
        if self.kind.coarse {
            SECOND * u32::try_from(ttl.get().as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
        } else {
            ttl.get()
        }
    }

    fn told(&self, time: Duration) -> Duration {
        if self.kind.coarse {
            Duration::from_secs(time.as_secs())
        } else {
            time
        }
    }

    fn holder(&self, grant: &Grant, now: Instant) -> Holder {
        Holder {
            label: grant.label.clone(),
            token: grant.token,
            age: self.told(now - grant.since),
            remaining: self.told(grant.until - now),
        }
    }
}

#[async_trait]
impl LeaseBackend for PlainStore {
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        self.takes(&request.key, request.ttl)?;
        let (mut rows, now) = (self.rows(), Instant::now());
        let row = rows.entry(request.key.clone()).or_default();
        if let Some(reason) = row.refused.get(&request.owner) {
            return Ok(AcquireOutcome::Refused(reason.clone()));
        }
        row.live(now);
        if self.kind.strict && row.expired.contains(&request.owner) {
            return Ok(AcquireOutcome::Refused(RefusedReason::Abandoned));
        }
        let (mark, until) = (row.mark, now + self.kept(request.ttl));
        let below = |high_water| {
            Ok(AcquireOutcome::Refused(RefusedReason::BelowMark {
                high_water,
            }))
        };
        if let Some(grant) = row.live(now) {
            if grant.owner != request.owner {
                return Ok(AcquireOutcome::Held(self.holder(grant, now)));
            }
            if let TokenRule::Exactly(token) = request.rule {
                match mark {
                    Some(mark) if token < mark => return below(mark),
                    _ => grant.token = token,
                }
            }
            grant.until = grant.until.max(until);
            let token = grant.token;
            row.mark = row.mark.max(Some(token));
            return Ok(AcquireOutcome::Granted(Granted::new(token)));
        }
        let token = match (request.rule, mark) {
            (TokenRule::Exactly(token), Some(mark)) if token <= mark => return below(mark),
            (TokenRule::Exactly(token), _) => token,
            (TokenRule::Next { after }, mark) => {
                let next = after
                    .max(mark)
                    .map_or(Ok(Token::MIN), |t| Token::new(t.get() + 1));
                match next {
                    Ok(token) => token,
                    Err(_) => return Ok(AcquireOutcome::Refused(RefusedReason::TokensExhausted)),
                }
            }
        };
        row.mark = Some(token);
        row.grant = Some(Grant {
            owner: request.owner,
            token,
            label: request.label.clone(),
            since: now,
            until,
            revoked: false,
        });
        Ok(AcquireOutcome::Granted(Granted::new(token)))
    }

    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        let (mut rows, now) = (self.rows(), Instant::now());
        let row = rows.entry(key.clone()).or_default();
        if row
            .live(now)
            .is_some_and(|grant| grant.owner == owner && !grant.revoked)
        {
            row.free();
        }
        row.refused.entry(owner).or_insert(RefusedReason::Abandoned);
        Ok(())
    }

    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        self.takes(&request.key, request.ttl)?;
        let (mut rows, now) = (self.rows(), Instant::now());
        let until = now + self.kept(request.ttl);
        let grant = rows.get_mut(&request.key).and_then(|row| row.live(now));
        Ok(match grant {
            Some(g) if g.owner == request.owner && g.token == request.token && !g.revoked => {
                g.until = g.until.max(until);
                RenewOutcome::Renewed
            }
            _ => RenewOutcome::Lost(LostCause::Unknown),
        })
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        let mut outcomes = Vec::new();
        for request in requests {
            outcomes.push(self.renew(request).await);
        }
        outcomes
    }

    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        let (mut rows, now) = (self.rows(), Instant::now());
        let Some(row) = rows.get_mut(key) else {
            return Ok(ReleaseOutcome::NotHeld);
        };
        let is_live = row
            .live(now)
            .is_some_and(|g| g.owner == owner && g.token == token && !g.revoked);
        if !is_live {
            return Ok(ReleaseOutcome::NotHeld);
        }
        row.free();
        if self.kind.strict {
            row.refused.insert(owner, RefusedReason::Abandoned);
        }
        Ok(ReleaseOutcome::Released)
    }

    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        check_fence(at_least)?;
        let (mut rows, now) = (self.rows(), Instant::now());
        let row = rows.entry(key.clone()).or_default();
        let mark = row.mark.map_or(at_least, |mark| mark.max(at_least));
        row.mark = Some(mark);
        let Some(grant) = row.live(now).filter(|g| g.token < mark) else {
            return Ok(mark);
        };
        grant.revoked = true;
        let owner = grant.owner;
        row.refused.insert(owner, RefusedReason::Revoked);
        if when == FenceWhen::Immediately {
            row.free();
        }
        Ok(mark)
    }

    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        let (mut rows, now) = (self.rows(), Instant::now());
        let mut state = KeyState {
            key: key.clone(),
            high_water: None,
            holder: None,
            blocked_for: None,
        };
        if let Some(row) = rows.get_mut(key) {
            state.high_water = row.mark;
            match row.live(now) {
                Some(grant) if grant.revoked => state.blocked_for = Some(grant.until - now),
                Some(grant) => state.holder = Some(self.holder(grant, now)),
                None => {}
            }
        }
        Ok(state)
    }

    fn list(&self, _prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        stream::iter([Err(StoreError::refusing("this store cannot list"))]).boxed()
    }

    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        if !self.kind.one_hint {
            return Ok(stream::pending().boxed());
        }
        let mut rows = self.rows();
        let row = rows.entry(key.clone()).or_default();
        let hints = row.hints.get_or_insert_with(|| watch::Sender::new(()));
        let mut seen = hints.subscribe();
        Ok(stream::once(async move {
            // The sender lives as long as the store.
            let _ = seen.changed().await;
        })
        .boxed())
    }

    async fn ping(&self) -> Result<Session, StoreError> {
        Ok(Session::NONE)
    }

    fn guarantees(&self) -> Guarantees {
        let mut claims = Guarantees::new("plain");
        if self.kind.coarse {
            let day = Ttl::new(SECOND * 86_400).unwrap_or(Ttl::MAX);
            claims = claims.ttl(TtlRange::new(Ttl::new(SECOND).unwrap_or(day), day, SECOND));
        }
        if self.kind.one_hint {
            claims = claims.wake_ups(WakeUps::Push);
        }
        if self.kind.narrow {
            claims = claims.max_key_bytes(32);
        }
        if self.kind.boasts {
            let all = Survives::NOTHING.restart().data_loss().failover();
            let grace = Duration::from_millis(1);
            claims = claims
                .exclusion(Exclusion::Consensus, all.clock_step())
                .tokens_survive(Survives::NOTHING.restart().failover().clock_step())
                .crash_release(CrashRelease::SessionLost { grace });
        }
        claims
    }

    async fn diagnose(&self, _ttl: Ttl) -> Result<Diagnosis, StoreError> {
        Ok(Diagnosis::default())
    }
}

/// A fixture of plain stores of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plain(pub(crate) Kind);

#[async_trait]
impl Fixture for Plain {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        let rows = Arc::default();
        Ok(Box::new(PlainStore { kind: self.0, rows }))
    }
}

#[async_trait]
impl Store for PlainStore {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        Ok(Arc::new(self.clone()))
    }
}
