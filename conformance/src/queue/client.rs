//! A client of one queue whose calls say what went wrong.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lease_core::{
    FenceWhen, Holder, Key, Label, LostCause, Owner, StoreError, Token, TokenRule, Ttl,
};
use lease_queue::{
    Added, Answer, ClaimRef, ClaimRequest, Claimed, Depth, ItemId, ItemState, Lane, NewItem, Phase,
    QueueName, QueueStore, Settle, Settled, What,
};
use tokio::time::Instant;

use crate::context::{owner, patience};
use crate::failure::{Failure, Outcome, check_eq};

/// Between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(4);

/// What a late worker may be told of its claim when somebody else has the item.
pub(crate) const SUPERSEDED: [LostCause; 3] =
    [LostCause::TakenOver, LostCause::Expired, LostCause::Unknown];

/// A client of the queue under test; a clone is the same client.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    store: Arc<dyn QueueStore>,
    queue: QueueName,
}

/// A request for whatever is ready.
pub(crate) fn next(owner: Owner, ttl: Ttl, max: usize) -> ClaimRequest {
    ClaimRequest {
        owner,
        ttl,
        label: Label::EMPTY,
        what: What::Next { max },
    }
}

/// A request for a key.
pub(crate) fn keyed(key: &Key, owner: Owner, ttl: Ttl) -> ClaimRequest {
    ClaimRequest {
        owner,
        ttl,
        label: Label::EMPTY,
        what: What::Key {
            key: key.clone(),
            rule: TokenRule::NEXT,
            waits: None,
        },
    }
}

/// Back to its place, at once.
pub(crate) fn back(counts: bool) -> Settle {
    Settle::Retry {
        delay: Duration::ZERO,
        counts,
        error: None,
    }
}

pub(crate) fn bury(reason: &str) -> Settle {
    Settle::Bury {
        reason: reason.to_owned(),
    }
}

/// Everything that a worker may ask for its claim.
pub(crate) fn every(ttl: Ttl) -> [Settle; 4] {
    [
        Settle::Extend(ttl),
        Settle::Complete,
        back(true),
        bury("too late"),
    ]
}

fn healthy<T>(call: &str, answer: Result<T, StoreError>) -> Outcome<T> {
    answer.map_err(|e| Failure::new(format!("{call} is answered by a healthy store"), e))
}

impl Client {
    pub(crate) fn new(store: Arc<dyn QueueStore>, queue: QueueName) -> Self {
        Self { store, queue }
    }

    /// For calls that are meant to fail or to be dropped.
    pub(crate) fn store(&self) -> &dyn QueueStore {
        self.store.as_ref()
    }

    pub(crate) fn queue(&self) -> &QueueName {
        &self.queue
    }

    pub(crate) async fn put(&self, items: &[NewItem]) -> Outcome<Vec<Added>> {
        let added = healthy("put", self.store.put(&self.queue, items).await)?;
        check_eq("one outcome per item", added.len(), items.len())?;
        Ok(added)
    }

    /// Puts what must be added.
    pub(crate) async fn add(&self, items: &[NewItem]) -> Outcome {
        let added = self.put(items).await?;
        check_eq("put of new items", added, vec![Added::Added; items.len()])
    }

    pub(crate) async fn ask(&self, request: &ClaimRequest) -> Outcome<Answer> {
        healthy("claim", self.store.claim(&self.queue, request).await)
    }

    /// Claims up to `max` items for a new owner; none when nothing is ready.
    pub(crate) async fn claims(&self, ttl: Ttl, max: usize) -> Outcome<Vec<Claimed>> {
        let request = next(owner(), ttl, max);
        match self.ask(&request).await? {
            Answer::Claimed { items, .. } => {
                let own = items.iter().all(|item| item.claim.owner == request.owner);
                if items.is_empty() || items.len() > max || !own {
                    let expected = format!("1 to {max} claims, all of the asker");
                    return Err(Failure::new(expected, items));
                }
                Ok(items)
            }
            Answer::Nothing { .. } => Ok(Vec::new()),
            other => Err(Failure::new("Claimed or Nothing", other)),
        }
    }

    /// Claims one item, if one is ready.
    pub(crate) async fn try_one(&self, ttl: Ttl) -> Outcome<Option<Claimed>> {
        Ok(self.claims(ttl, 1).await?.pop())
    }

    /// Claims the one item that must be ready.
    pub(crate) async fn one(&self, ttl: Ttl) -> Outcome<Claimed> {
        match self.try_one(ttl).await? {
            Some(claimed) => Ok(claimed),
            None => Err(Failure::says("an item that is ready is claimed", "Nothing")),
        }
    }

    /// Asks, always for the same owner, until an item is claimed.
    pub(crate) async fn until_one(&self, owner: Owner, ttl: Ttl) -> Outcome<Claimed> {
        let give_up = Instant::now() + patience();
        loop {
            let answer = self.ask(&next(owner, ttl, 1)).await?;
            match answer {
                Answer::Claimed { mut items, .. } if items.len() == 1 => {
                    return items.pop().ok_or_else(|| Failure::says("a claim", "none"));
                }
                Answer::Nothing { .. } if Instant::now() < give_up => {}
                other => {
                    let expected = format!("an item to claim, within {:?}", patience());
                    return Err(Failure::new(expected, other));
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Checks that nothing can be claimed now.
    pub(crate) async fn nothing(&self, ttl: Ttl) -> Outcome<Option<Duration>> {
        match self.ask(&next(owner(), ttl, 1)).await? {
            Answer::Nothing { next } => Ok(next),
            other => Err(Failure::new("Nothing: no item is ready", other)),
        }
    }

    /// Claims a key that must be free.
    pub(crate) async fn key(&self, key: &Key, owner: Owner, ttl: Ttl) -> Outcome<Claimed> {
        match self.ask(&keyed(key, owner, ttl)).await? {
            Answer::Claimed { mut items, .. } if items.len() == 1 => items
                .pop()
                .ok_or_else(|| Failure::says("a claim of the key", "none")),
            other => Err(Failure::new(format!("one claim, of {key:?}"), other)),
        }
    }

    pub(crate) async fn settle(&self, claim: &ClaimRef, settle: Settle) -> Outcome<Settled> {
        let claims = [(claim.clone(), settle)];
        let mut answers = self.store.settle(&self.queue, &claims).await;
        check_eq("one outcome per claim", answers.len(), 1)?;
        match answers.pop() {
            Some(answer) => healthy("settle", answer),
            None => Err(Failure::says("one outcome", "none")),
        }
    }

    /// Settles a live claim.
    pub(crate) async fn done(&self, claim: &ClaimRef, settle: Settle) -> Outcome {
        let what = format!("{settle:?} of the live claim");
        check_eq(&what, self.settle(claim, settle).await?, Settled::Done)
    }

    /// Settles what was settled before.
    pub(crate) async fn before(&self, claim: &ClaimRef, settle: Settle) -> Outcome {
        let what = format!("{settle:?} once more");
        check_eq(&what, self.settle(claim, settle).await?, Settled::Before)
    }

    /// Settles a claim that is not live; the cause must be one of `honest`.
    pub(crate) async fn lost(
        &self,
        claim: &ClaimRef,
        settle: Settle,
        honest: &[LostCause],
    ) -> Outcome {
        let what = format!("{settle:?} of a claim that is not live: Lost, one of {honest:?}");
        match self.settle(claim, settle).await? {
            Settled::Lost(cause) if honest.contains(&cause) => Ok(()),
            other => Err(Failure::new(what, other)),
        }
    }

    pub(crate) async fn abandon(&self, owner: Owner) -> Outcome {
        healthy(
            "abandon",
            self.store.abandon(&self.queue, None, owner).await,
        )
    }

    pub(crate) async fn fence(&self, lane: &Lane, token: Token, when: FenceWhen) -> Outcome<Token> {
        let fenced = self.store.fence(&self.queue, lane, token, when).await;
        healthy("fence", fenced)
    }

    pub(crate) async fn requeue(&self, item: ItemId) -> Outcome<bool> {
        healthy("requeue", self.store.requeue(&self.queue, item).await)
    }

    pub(crate) async fn depth(&self) -> Outcome<Depth> {
        healthy("depth", self.store.depth(&self.queue).await)
    }

    pub(crate) async fn watch(&self, key: Option<&Key>) -> Outcome<BoxStream<'static, ()>> {
        healthy("watch", self.store.watch(&self.queue, key).await)
    }

    /// The queue's items, in the store's order.
    pub(crate) async fn items(&self, dead: bool) -> Outcome<Vec<ItemState>> {
        let mut stream = self.store.items(&self.queue, dead);
        let mut states = Vec::new();
        while let Some(state) = stream.next().await {
            states.push(healthy("items", state)?);
        }
        Ok(states)
    }

    /// One item that must be in the queue, dead or not.
    pub(crate) async fn state(&self, item: ItemId) -> Outcome<ItemState> {
        for dead in [false, true] {
            let found = self.items(dead).await?.into_iter().find(|s| s.id == item);
            if let Some(state) = found {
                return Ok(state);
            }
        }
        Err(Failure::says(
            format!("{item} is in the queue"),
            "it is not listed",
        ))
    }

    /// Who has the claim of an item that must be claimed.
    pub(crate) async fn holder(&self, item: ItemId) -> Outcome<Holder> {
        let state = self.state(item).await?;
        match state.phase {
            Phase::Claimed(holder) => Ok(holder),
            _ => Err(Failure::new(format!("{item} is claimed"), state)),
        }
    }
}
