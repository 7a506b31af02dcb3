//! A client whose calls say what went wrong.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lease_core::{
    AcquireOutcome, AcquireRequest, FenceWhen, Granted, Holder, Key, KeyState, Label, LeaseBackend,
    LostCause, Owner, RefusedReason, ReleaseOutcome, RenewOutcome, RenewRequest, StoreError, Token,
    TokenRule, Ttl,
};

use crate::failure::{Failure, Outcome};

/// A client of the store under test; a clone is the same client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    backend: Arc<dyn LeaseBackend>,
}

/// A grant that a case holds.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) token: Token,
}

/// An acquire by the usual rule and without a label.
pub(crate) fn ask(key: &Key, owner: Owner, ttl: Ttl) -> AcquireRequest {
    AcquireRequest {
        key: key.clone(),
        owner,
        ttl,
        label: Label::EMPTY,
        rule: TokenRule::NEXT,
        waits: None,
    }
}

/// As [`ask`], for one token.
pub(crate) fn ask_exactly(key: &Key, owner: Owner, ttl: Ttl, token: Token) -> AcquireRequest {
    AcquireRequest {
        rule: TokenRule::Exactly(token),
        ..ask(key, owner, ttl)
    }
}

fn healthy<T>(call: &str, answer: Result<T, StoreError>) -> Outcome<T> {
    answer.map_err(|e| Failure::new(format!("{call} is answered by a healthy store"), e))
}

impl Client {
    pub(crate) fn new(backend: Arc<dyn LeaseBackend>) -> Self {
        Self { backend }
    }

    /// For calls that are meant to fail or to be dropped.
    pub(crate) fn backend(&self) -> &dyn LeaseBackend {
        self.backend.as_ref()
    }

    /// For a holder's side on top of it.
    pub(crate) fn shared(&self) -> Arc<dyn LeaseBackend> {
        Arc::clone(&self.backend)
    }

    pub(crate) async fn acquire(&self, request: &AcquireRequest) -> Outcome<AcquireOutcome> {
        healthy("acquire", self.backend.acquire(request).await)
    }

    /// Acquires what must be granted.
    pub(crate) async fn grant(&self, key: &Key, owner: Owner, ttl: Ttl) -> Outcome<Held> {
        let granted = self.granted(&ask(key, owner, ttl)).await?;
        Ok(Held {
            key: key.clone(),
            owner,
            token: granted.token,
        })
    }

    /// Acquires what must be granted.
    pub(crate) async fn granted(&self, request: &AcquireRequest) -> Outcome<Granted> {
        match self.acquire(request).await? {
            AcquireOutcome::Granted(granted) => Ok(granted),
            other => Err(Failure::new(
                format!("acquire of {:?}: Granted", request.key),
                other,
            )),
        }
    }

    /// Acquires what another holds.
    pub(crate) async fn held(&self, request: &AcquireRequest) -> Outcome<Holder> {
        match self.acquire(request).await? {
            AcquireOutcome::Held(holder) => Ok(holder),
            other => Err(Failure::new(
                format!(
                    "acquire of {:?}, which another owner's grant blocks: Held",
                    request.key
                ),
                other,
            )),
        }
    }

    /// Acquires what must be refused.
    pub(crate) async fn refused(&self, request: &AcquireRequest) -> Outcome<RefusedReason> {
        match self.acquire(request).await? {
            AcquireOutcome::Refused(reason) => Ok(reason),
            other => Err(Failure::new(
                format!("acquire of {:?}: Refused", request.key),
                other,
            )),
        }
    }

    pub(crate) async fn abandon(&self, key: &Key, owner: Owner) -> Outcome {
        healthy("abandon", self.backend.abandon(key, owner).await)
    }

    pub(crate) async fn renew(&self, held: &Held, ttl: Ttl) -> Outcome<RenewOutcome> {
        healthy("renew", self.backend.renew(&renewal(held, ttl)).await)
    }

    /// Renews a grant that is live.
    pub(crate) async fn renewed(&self, held: &Held, ttl: Ttl) -> Outcome {
        match self.renew(held, ttl).await? {
            RenewOutcome::Renewed => Ok(()),
            lost @ RenewOutcome::Lost(_) => Err(Failure::new(
                format!("renew of the live grant of {:?}: Renewed", held.key),
                lost,
            )),
        }
    }

    /// Renews a grant that is not live; the cause must be one of `honest`.
    pub(crate) async fn lost(&self, held: &Held, ttl: Ttl, honest: &[LostCause]) -> Outcome {
        match self.renew(held, ttl).await? {
            RenewOutcome::Lost(cause) if honest.contains(&cause) => Ok(()),
            other => Err(Failure::new(
                format!(
                    "renew of {:?} with a grant that is not live: Lost, with a cause of {honest:?}",
                    held.key
                ),
                other,
            )),
        }
    }

    pub(crate) async fn renew_many(&self, requests: &[RenewRequest]) -> Outcome<Vec<RenewOutcome>> {
        let answers = self.backend.renew_many(requests).await;
        if answers.len() != requests.len() {
            return Err(Failure::says(
                format!("renew_many: {} outcomes, one per request", requests.len()),
                format!("{} outcomes", answers.len()),
            ));
        }
        answers
            .into_iter()
            .map(|answer| healthy("renew_many", answer))
            .collect()
    }

    pub(crate) async fn release(&self, held: &Held) -> Outcome<ReleaseOutcome> {
        let answer = self.backend.release(&held.key, held.owner, held.token);
        healthy("release", answer.await)
    }

    /// Releases a grant that is live.
    pub(crate) async fn released(&self, held: &Held) -> Outcome {
        self.release_answers(held, ReleaseOutcome::Released, "the live grant")
            .await
    }

    /// Releases a grant that is not live.
    pub(crate) async fn not_held(&self, held: &Held) -> Outcome {
        self.release_answers(held, ReleaseOutcome::NotHeld, "a grant that is not live")
            .await
    }

    async fn release_answers(&self, held: &Held, due: ReleaseOutcome, of: &str) -> Outcome {
        let outcome = self.release(held).await?;
        if outcome == due {
            return Ok(());
        }
        Err(Failure::new(
            format!("release of {of} of {:?}: {due:?}", held.key),
            outcome,
        ))
    }

    pub(crate) async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Outcome<Token> {
        healthy("fence", self.backend.fence(key, at_least, when).await)
    }

    pub(crate) async fn inspect(&self, key: &Key) -> Outcome<KeyState> {
        let state = healthy("inspect", self.backend.inspect(key).await)?;
        if state.key != *key {
            return Err(Failure::new(
                format!("inspect of {key:?} is about it"),
                state,
            ));
        }
        Ok(state)
    }

    /// The holder that inspect must see.
    pub(crate) async fn holder(&self, key: &Key) -> Outcome<Holder> {
        let state = self.inspect(key).await?;
        match state.holder {
            Some(holder) => Ok(holder),
            None => Err(Failure::new(
                format!("inspect of {key:?} sees the live grant's holder"),
                state,
            )),
        }
    }

    /// Checks that exactly this grant is the live one.
    pub(crate) async fn is_live(&self, held: &Held) -> Outcome<Holder> {
        let holder = self.holder(&held.key).await?;
        if holder.token == held.token {
            return Ok(holder);
        }
        Err(Failure::new(
            format!(
                "the grant with token {} of {:?} is live",
                held.token, held.key
            ),
            holder,
        ))
    }

    /// The mark that inspect must see.
    pub(crate) async fn mark(&self, key: &Key) -> Outcome<Token> {
        let state = self.inspect(key).await?;
        match state.high_water {
            Some(mark) => Ok(mark),
            None => Err(Failure::new(
                format!("inspect of {key:?} sees its high-water mark"),
                state,
            )),
        }
    }

    /// Everything under the prefix, in the store's order.
    pub(crate) async fn list(&self, prefix: &str) -> Outcome<Vec<KeyState>> {
        let mut stream = self.backend.list(prefix);
        let mut states = Vec::new();
        while let Some(state) = stream.next().await {
            states.push(healthy("list", state)?);
        }
        Ok(states)
    }

    pub(crate) async fn watch(&self, key: &Key) -> Outcome<BoxStream<'static, ()>> {
        healthy("watch", self.backend.watch(key).await)
    }
}

/// The renewal of one grant.
pub(crate) fn renewal(held: &Held, ttl: Ttl) -> RenewRequest {
    RenewRequest {
        key: held.key.clone(),
        owner: held.owner,
        token: held.token,
        ttl,
    }
}
