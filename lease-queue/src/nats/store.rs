//! The store: the streams that it needs, and `QueueStore` by way of the lanes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::{join, join_all, try_join_all};
use futures_util::stream::BoxStream;
use lease_core::{
    AcquireOutcome, Diagnosis, FenceWhen, Guarantees, Key, KeyState, LostCause, Owner, StoreError,
    Token, Ttl, check_fence,
};
use tokio::sync::watch;

use super::items::Items;
use super::lane::Lanes;
use super::link::{Line, Link};
use super::log;
use super::names::Names;
use super::options::NatsOptions;
use super::rules::{Ask, Kept};
use super::stream as streams;
use super::{doctor, list, promise, wake};
use crate::check::{check_claim, check_put, check_settle};
use crate::item::{ClaimRef, Claimed, ItemId, ItemState, NewItem};
use crate::keyed::unanswered;
use crate::name::{Lane, QueueName};
use crate::store::{
    Added, Answer, Capabilities, ClaimRequest, Depth, QueueStore, Settle, Settled, What,
};

/// A store on NATS JetStream; see the [module](super).
///
/// A clone is the same client: one connection, and one memory of what was seen.
#[derive(Clone)]
pub struct NatsStore {
    lanes: Lanes,
    items: Items,
    names: Names,
    capabilities: Arc<Capabilities>,
}

impl fmt::Debug for NatsStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsStore")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl NatsStore {
    pub(super) async fn open(
        options: NatsOptions,
        client: Client,
        line: watch::Receiver<Line>,
    ) -> Result<Self, StoreError> {
        let mut context = jetstream::new(client);
        context.set_timeout(options.response_timeout);
        let name = options.names.stream();
        let replicas = streams::ready(&context, &options).await?;
        let stream = context
            .get_stream_no_info(&name)
            .await
            .map_err(|e| super::errors::refusing("the stream cannot be used", e))?;
        let link = Link {
            context,
            stream,
            name,
            replicated: replicas > 1,
            limit: options.response_timeout,
            line,
        };
        let lanes = Lanes {
            link,
            sights: Arc::default(),
            turns: Arc::default(),
            leaving: Arc::default(),
            retention: options.tombstone_retention,
        };
        let room = log::room(&lanes.link);
        Ok(Self {
            items: Items::new(lanes.link.clone(), options.clone()),
            lanes,
            names: options.names,
            capabilities: Arc::new(promise::capabilities(replicas, room)),
        })
    }

    #[cfg(test)]
    pub(super) fn link(&self) -> &Link {
        &self.lanes.link
    }

    fn guarantees(&self) -> &Guarantees {
        &self.capabilities.guarantees
    }

    fn check_settle(&self, claim: &ClaimRef, settle: &Settle) -> Result<(), StoreError> {
        check_settle(claim, settle, &self.capabilities)?;
        match settle {
            Settle::Extend(ttl) => promise::check_ttl(*ttl, self.guarantees()),
            _ => Ok(()),
        }
    }

    async fn claim_key(
        &self,
        queue: &QueueName,
        key: &Key,
        ask: Ask<'_>,
    ) -> Result<Answer, StoreError> {
        let subject = self.names.key(queue, key);
        Ok(match self.lanes.acquire(&subject, &ask).await? {
            AcquireOutcome::Granted(granted) => {
                let claim = ClaimRef {
                    item: ItemId::TOKEN,
                    lane: Lane::Key(key.clone()),
                    owner: ask.owner,
                    token: granted.token,
                };
                let item = Claimed {
                    claim,
                    body: Bytes::new(),
                    attempt: 1,
                    age: Duration::ZERO,
                };
                Answer::Claimed {
                    items: vec![item],
                    taken_over: granted.taken_over,
                    repeated: granted.repeated,
                }
            }
            AcquireOutcome::Held(holder) => Answer::Held(holder),
            AcquireOutcome::Refused(reason) => Answer::Refused(reason),
        })
    }

    /// Of a key's token item.
    async fn settle_key(
        &self,
        queue: &QueueName,
        key: &Key,
        claim: &ClaimRef,
        settle: &Settle,
    ) -> Result<Settled, StoreError> {
        if claim.item != ItemId::TOKEN {
            return Ok(Settled::Lost(LostCause::Unknown));
        }
        let subject = self.names.key(queue, key);
        let (owner, token) = (claim.owner, claim.token);
        let kept = match settle {
            Settle::Extend(ttl) => self.lanes.renew(&subject, owner, token, *ttl).await?,
            _ => self.lanes.release(&subject, owner, token).await?,
        };
        Ok(match kept {
            Kept::Done => Settled::Done,
            Kept::Before => Settled::Before,
            Kept::Lost(cause) => Settled::Lost(cause),
        })
    }
}

#[async_trait]
impl QueueStore for NatsStore {
    fn capabilities(&self) -> Capabilities {
        (*self.capabilities).clone()
    }

    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        check_put(items, &self.capabilities)?;
        self.items.put(queue, items).await
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        check_claim(request)?;
        promise::check_ttl(request.ttl, self.guarantees())?;
        let (key, rule, waits) = match &request.what {
            What::Key { key, rule, waits } => (key, *rule, *waits),
            What::Next { max } => return self.items.claim(queue, request, *max).await,
        };
        // Of an owner that was given up with all that it has: see the module's page.
        if let Some(reason) = self.items.tombstone(queue, request.owner) {
            return Ok(Answer::Refused(reason));
        }
        let ask = Ask {
            owner: request.owner,
            ttl: request.ttl,
            label: &request.label,
            rule,
            waits,
            max_payload: self.lanes.link.max_payload(),
        };
        self.claim_key(queue, key, ask).await
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        let mut answers: Vec<Option<Result<Settled, StoreError>>> = Vec::new();
        let (mut of_keys, mut of_items) = (Vec::new(), Vec::new());
        for (n, one) in claims.iter().enumerate() {
            let (claim, settle) = one;
            let checked = self.check_settle(claim, settle);
            match (&checked, &claim.lane) {
                (Err(_), _) => {}
                (Ok(()), Lane::Key(key)) => of_keys.push((n, key, one)),
                (Ok(()), _) => of_items.push((n, one)),
            }
            answers.push(checked.err().map(Err));
        }
        let keys = of_keys
            .iter()
            .map(|(_, key, (claim, settle))| self.settle_key(queue, key, claim, settle));
        let items: Vec<_> = of_items.iter().map(|(_, one)| *one).collect();
        let (keys, items) = join(join_all(keys), self.items.settle(queue, &items)).await;
        let places = of_keys.iter().map(|(n, ..)| *n).zip(keys);
        for (n, answer) in places.chain(of_items.iter().map(|(n, _)| *n).zip(items)) {
            if let Some(place) = answers.get_mut(n) {
                *place = Some(answer);
            }
        }
        let answers = answers.into_iter();
        answers
            .map(|answer| answer.unwrap_or_else(|| Err(unanswered())))
            .collect()
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        if let Some(key) = key {
            return self.lanes.abandon(&self.names.key(queue, key), owner).await;
        }
        self.items.abandon(queue, owner).await?;
        // And the keys, as far as this client has seen that they are the owner's.
        let subjects = self
            .lanes
            .sights
            .of_owner(&self.names.keys_before(queue), owner);
        let keys = subjects.iter().map(|key| self.lanes.abandon(key, owner));
        try_join_all(keys).await.map(drop)
    }

    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        check_fence(at_least)?;
        let Lane::Key(key) = lane else {
            return self.items.fence(queue, lane, at_least, when).await;
        };
        let subject = self.names.key(queue, key);
        self.lanes.fence(&subject, at_least, when).await
    }

    async fn inspect(&self, queue: &QueueName, key: &Key) -> Result<KeyState, StoreError> {
        self.lanes.inspect(&self.names.key(queue, key), key).await
    }

    fn keys(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>> {
        list::keys(
            self.lanes.clone(),
            self.names.keys(queue),
            prefix.to_owned(),
        )
    }

    fn items(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        self.items.items(queue, dead)
    }

    async fn requeue(&self, queue: &QueueName, item: ItemId) -> Result<bool, StoreError> {
        self.items.requeue(queue, item).await
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth, StoreError> {
        self.items.depth(queue).await
    }

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        match key {
            Some(key) => wake::watch(&self.lanes, &self.names, queue, key).await,
            None => self.items.watch(queue).await,
        }
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        doctor::diagnose(&self.lanes.link, &self.names, &self.capabilities, ttl).await
    }
}
