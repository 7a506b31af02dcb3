//! Queues on Redis: one script for each operation.

#[doc = include_str!("../docs/redis.md")]
pub mod guide {}

mod args;
mod gathered;
mod list;
mod reply;
mod rights;
mod scripts;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::{
    Diagnosis, FenceWhen, InvalidInput, Key, KeyState, LeaseBackend, Owner, StoreError,
    StoreErrorKind, Token, Ttl, WaiterOrder, check_fence,
};
use lease_redis::{RedisOptions, RedisStore};

use crate::check::{check_claim, check_put, check_settle};
use crate::gather::Gather;
use crate::item::{ClaimRef, ItemId, ItemState, NewItem};
use crate::keyed::unanswered;
use crate::name::{Lane, QueueName};
use crate::store::{
    Added, Answer, Capabilities, ClaimRequest, Depth, QueueStore, Settle, Settled, What,
};
use args::Args;
use reply::{Fields, Reply};
use scripts::{Op, Scripts};

/// Queues on a Redis server, on the primary that sentinels name, or in a Redis Cluster
/// (each queue in one of its slots).
///
/// Cheap to clone; a clone is the same client. What it promises, failure by failure, and
/// what rights it needs stands in [`guide`].
///
/// ```no_run
/// use lease_queue::redis::RedisQueues;
///
/// # async fn f() -> Result<(), Box<dyn std::error::Error>> {
/// let options = RedisQueues::options("queue+redis://127.0.0.1:6379/0")?;
/// let queues = RedisQueues::open(options).await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisQueues {
    store: RedisStore,
    can: Arc<Capabilities>,
    scripts: Arc<Scripts>,
    /// The user may do all of it.
    allowed: Arc<AtomicBool>,
    gather: Arc<Gather<Self>>,
}

/// Batches under way at once, of a queue: a few keep the server busy while answers are
/// on their way; many would only make batches smaller.
const WIDTH: usize = 4;

/// Tasks that all wait for one call leave the server idle while they run, and are idle
/// themselves while it works: in halves, one half runs while the server works for the
/// other.
const PARTS: usize = 2;

impl RedisQueues {
    /// Reads a URL: any of those of [`RedisOptions::from_url`], with `queue+` before it
    /// or without. Connects to nothing.
    ///
    /// # Errors
    /// As of [`RedisOptions::from_url`].
    pub fn options(url: &str) -> Result<RedisOptions, InvalidInput> {
        RedisOptions::from_url(url.strip_prefix("queue+").unwrap_or(url))
    }

    /// Opens the queues under the options' prefix, and connects to the server.
    ///
    /// # Errors
    /// As of [`RedisOptions::open`], and of [`over`](Self::over).
    ///
    /// # Cancel safety
    /// Safe: the connection is closed again.
    pub async fn open(options: RedisOptions) -> Result<Self, StoreError> {
        Self::over(options.open().await?)
    }

    /// Opens the queues without connecting: for a program that must start while the
    /// server may be away.
    ///
    /// # Errors
    /// `InvalidInput` for an option out of its range; as of [`over`](Self::over).
    pub fn open_lazily(options: RedisOptions) -> Result<Self, StoreError> {
        Self::over(options.open_lazily()?)
    }

    /// The queues beside a store's leases, under its prefix and over its connections.
    ///
    /// # Errors
    /// `InvalidInput` for a store with a quarantine, or one that waits for replicas:
    /// queues have neither.
    pub fn over(store: RedisStore) -> Result<Self, StoreError> {
        let settings = store.settings();
        if settings.quarantine || settings.waits {
            return Err(StoreError::new(
                StoreErrorKind::InvalidInput,
                "queues on Redis have no quarantine and wait for no replicas: leave quarantine \
                 and wait_for_replicas out of their options, and use appendfsync always",
            ));
        }
        let mut guarantees = store.guarantees();
        guarantees.store = format!("queue+{}", guarantees.store).into();
        guarantees.waiter_order = WaiterOrder::Fifo;
        let mut can = Capabilities::new(guarantees);
        can.dedup_window = settings.tombstone_retention;
        Ok(Self {
            scripts: Arc::new(Scripts::new(&settings)),
            store,
            can: Arc::new(can),
            allowed: Arc::default(),
            gather: Gather::in_parts(WIDTH, 1, PARTS),
        })
    }

    fn base(&self, queue: &QueueName) -> Result<String, StoreError> {
        // A queue's name is a key's, only shorter.
        let name = Key::new(queue.as_str()).map_err(StoreError::from)?;
        Ok(self.store.queue_name(&name))
    }

    /// The answers of a script, and why an earlier copy of it may take effect.
    async fn ask(
        &self,
        op: Op,
        queue: &QueueName,
        args: Args,
        may_repeat: bool,
    ) -> Result<(Vec<Reply>, Option<StoreError>), StoreError> {
        if !self.allowed.load(Ordering::Relaxed) {
            self.check_rights(queue).await?;
            self.allowed.store(true, Ordering::Relaxed);
        }
        self.ask_unchecked(op, queue, args, may_repeat).await
    }

    async fn ask_unchecked(
        &self,
        op: Op,
        queue: &QueueName,
        args: Args,
        may_repeat: bool,
    ) -> Result<(Vec<Reply>, Option<StoreError>), StoreError> {
        let base = self.base(queue)?;
        let program = self.scripts.program(op);
        let answered = self.store.run(program, &base, args.parts(), may_repeat);
        let answered = answered.await?;
        let replies = Reply::all(answered.value)?;
        for caught in replies.iter().filter_map(Reply::caught) {
            if let Some(error) = self.store.demoted(caught).await {
                return Err(error);
            }
        }
        Ok((replies, answered.doubt))
    }

    /// The one answer of a script that gives one.
    async fn ask_one(
        &self,
        op: Op,
        queue: &QueueName,
        args: Args,
        may_repeat: bool,
    ) -> Result<Fields, StoreError> {
        let answer = self.ask_doubted(op, queue, args, may_repeat).await?;
        Ok(answer.0)
    }

    /// As [`ask_one`](Self::ask_one), and why an earlier copy may take effect.
    async fn ask_doubted(
        &self,
        op: Op,
        queue: &QueueName,
        args: Args,
        may_repeat: bool,
    ) -> Result<(Fields, Option<StoreError>), StoreError> {
        let (replies, doubt) = self.ask(op, queue, args, may_repeat).await?;
        let reply = replies.into_iter().next().ok_or_else(reply::odd)?;
        match reply.read(op.doing()) {
            Ok(answer) => Ok((answer, doubt)),
            Err(error) => Err(reply::doubtful(error, doubt.as_ref())),
        }
    }
}

#[async_trait]
impl QueueStore for RedisQueues {
    fn capabilities(&self) -> Capabilities {
        (*self.can).clone()
    }

    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError> {
        check_put(items, &self.can)?;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let mut args = Args::default();
        items.iter().for_each(|item| args.put(item));
        let answer = self.ask_one(Op::Put, queue, args, false).await?;
        answer.added(items.len())
    }

    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError> {
        check_claim(request)?;
        match &request.what {
            What::Next { .. } => self.gathered_claim(queue, request).await,
            What::Key { key, rule, waits } => {
                let args = Args::key(request, key, *rule, *waits);
                let (answer, doubt) = self.ask_doubted(Op::Key, queue, args, true).await?;
                answer.claimed_key(key, request.owner, doubt)
            }
        }
    }

    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        let checked = claims
            .iter()
            .map(|(claim, settle)| check_settle(claim, settle, &self.can));
        let checked: Vec<_> = checked.collect();
        let sound = claims
            .iter()
            .zip(&checked)
            .filter(|(_, sound)| sound.is_ok());
        let sound: Vec<_> = sound.map(|(claim, _)| claim.clone()).collect();
        let settled = match &*sound {
            // Alone, or together with others': the renewals of many claims come together
            // anyway.
            [(claim, end)] if !matches!(end, Settle::Extend(_)) => {
                vec![self.gathered_settle(queue, claim, end).await]
            }
            _ => self.settle_all(queue, &sound).await,
        };
        let mut settled = settled.into_iter();
        let outcome = |checked: Result<(), StoreError>| {
            checked?;
            settled.next().unwrap_or_else(|| Err(unanswered()))
        };
        checked.into_iter().map(outcome).collect()
    }

    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError> {
        let args = Args::abandon(key, owner);
        self.ask_one(Op::Abandon, queue, args, true).await.map(drop)
    }

    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        check_fence(at_least)?;
        let args = Args::fence(lane, at_least, when);
        let answer = self.ask_one(Op::Fence, queue, args, true).await?;
        answer.token(0)
    }

    async fn inspect(&self, queue: &QueueName, key: &Key) -> Result<KeyState, StoreError> {
        let args = Args::look("K").with(format!("k:{key}"));
        let answer = self.ask_one(Op::Look, queue, args, true).await?;
        answer.key_state(key)
    }

    fn keys(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>> {
        list::keys(self.clone(), queue.clone(), prefix.to_owned())
    }

    fn items(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        list::items(self.clone(), queue.clone(), dead)
    }

    async fn requeue(&self, queue: &QueueName, item: ItemId) -> Result<bool, StoreError> {
        let args = Args::default().with(item.to_string());
        // A second copy would say that it was not dead.
        let answer = self.ask_one(Op::Requeue, queue, args, false).await?;
        Ok(answer.number(0)? == 1)
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth, StoreError> {
        let answer = self.ask_one(Op::Look, queue, Args::look("N"), true).await?;
        answer.depth()
    }

    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        let base = self.base(queue)?;
        let channel = match key {
            None => base,
            Some(key) => format!("{base}:k:{key}"),
        };
        self.store.hints(channel).await
    }

    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        let mut diagnosis = self.store.diagnose_queues(ttl).await?;
        diagnosis.findings.extend(self.judge_rights().await);
        Ok(diagnosis)
    }
}

/// Nothing of the URL, which may hold secrets.
impl fmt::Debug for RedisQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisQueues").finish_non_exhaustive()
    }
}
