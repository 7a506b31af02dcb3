//! The store: the streams that it needs, and `QueueStore` by way of the lanes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream;
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{
    AcquireOutcome, Diagnosis, FenceWhen, Guarantees, Key, KeyState, LostCause, Owner, StoreError,
    Token, Ttl, check_fence,
};
use tokio::sync::watch;

use super::lane::Lanes;
use super::link::{Line, Link};
use super::names::Names;
use super::options::NatsOptions;
use super::rules::{Ask, Kept};
use super::stream as streams;
use super::{doctor, list, promise, wake};
use crate::check::{check_claim, check_items, check_put, check_settle};
use crate::item::{ClaimRef, Claimed, ItemId, ItemState, NewItem};
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
            retention: options.tombstone_retention,
        };
        Ok(Self {
            lanes,
            names: options.names,
            capabilities: Arc::new(promise::capabilities(replicas)),
        })
    }

    fn guarantees(&self) -> &Guarantees {
        &self.capabilities.guarantees
    }

    /// Every lane is a key's, where there are no items.
    fn only_key<'a>(&self, lane: &'a Lane) -> Result<&'a Key, StoreError> {
        match lane {
            Lane::Key(key) => Ok(key),
            _ => Err(self.no_items()),
        }
    }

    fn no_items(&self) -> StoreError {
        match check_items(&self.capabilities) {
            Err(error) => error,
            Ok(()) => StoreError::refusing("this store keeps no items"),
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

    async fn settle_one(
        &self,
        queue: &QueueName,
        claim: &ClaimRef,
        settle: &Settle,
    ) -> Result<Settled, StoreError> {
        check_settle(claim, settle, &self.capabilities)?;
        let key = self.only_key(&claim.lane)?;
        if claim.item != ItemId::TOKEN {
            return Ok(Settled::Lost(LostCause::Unknown));
        }
        let subject = self.names.key(queue, key);
        let (owner, token) = (claim.owner, claim.token);
        let kept = match settle {
            Settle::Extend(ttl) => {
                promise::check_ttl(*ttl, self.guarantees())?;
                self.lanes.renew(&subject, owner, token, *ttl).await?
            }
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

    async fn put(&self, _queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        check_put(items, &self.capabilities)?;
        Ok(Vec::new())
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        check_claim(request)?;
        promise::check_ttl(request.ttl, self.guarantees())?;
        // Nothing here could keep a line: whether the asker waits is no matter.
        let What::Key { key, rule, .. } = &request.what else {
            return Err(self.no_items());
        };
        let ask = Ask {
            owner: request.owner,
            ttl: request.ttl,
            label: &request.label,
            rule: *rule,
        };
        self.claim_key(queue, key, ask).await
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        join_all(
            claims
                .iter()
                .map(|(claim, settle)| self.settle_one(queue, claim, settle)),
        )
        .await
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        match key {
            Some(key) => self.lanes.abandon(&self.names.key(queue, key), owner).await,
            None => Err(self.no_items()),
        }
    }

    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        check_fence(at_least)?;
        let key = self.only_key(lane)?;
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
        _queue: &QueueName,
        _dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        stream::iter([Err(self.no_items())]).boxed()
    }

    async fn requeue(&self, _queue: &QueueName, _item: ItemId) -> Result<bool, StoreError> {
        Err(self.no_items())
    }

    async fn depth(&self, _queue: &QueueName) -> Result<Depth, StoreError> {
        Err(self.no_items())
    }

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        wake::watch(&self.lanes, &self.names, queue, key).await
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        doctor::diagnose(&self.lanes.link, ttl).await
    }
}
