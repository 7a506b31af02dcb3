//! The queues' items as a client asks for them: what to send, and what it was told.

use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{Clock, FenceWhen, Moment, Owner, RefusedReason, StoreError, SystemClock, Token};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::limits::{another, cut, full, on_one, size_of};
use super::machine::Queue;
use super::op::{OneSettle, Op, Reply};
use crate::item::{ClaimRef, ItemId, ItemState, NewItem};
use crate::name::{Lane, QueueName};
use crate::nats::link::Link;
use crate::nats::log::{self, Log, Logs};
use crate::nats::options::NatsOptions;
use crate::store::{Added, Answer, ClaimRequest, Depth, Settle, Settled};

/// How many items one look lists.
const PAGE: usize = 256;
/// About how much of a message the settles of one operation fill.
const SETTLE_BYTES: usize = 128 * 1024;
/// The most grants that one operation says are over.
const MOST_OVER: usize = 128;
/// The items of all queues of one client.
#[derive(Clone, Debug)]
pub(crate) struct Items {
    /// From the first use of items on: who leases keys alone needs no stream of theirs.
    logs: Arc<OnceCell<Logs<Queue>>>,
    /// To the stream of the owner records.
    link: Link,
    options: NatsOptions,
    clock: SystemClock,
}

/// An operation that is about to be sent.
struct Beginning {
    log: Arc<Log<Queue>>,
    /// What was seen is of this history of the log.
    history: u64,
    deadline: Instant,
    /// Before anything is sent.
    sent: Moment,
}

impl Beginning {
    fn look<R>(&self, look: impl FnOnce(&Queue) -> R) -> R {
        self.log.peek(look)
    }

    async fn submit(&self, op: Op) -> Result<Reply, StoreError> {
        self.log.submit_in(self.history, op, self.deadline).await
    }

    /// What was granted or extended at that revision is counted from the request on.
    fn note_sent<'a>(&self, claims: impl Iterator<Item = &'a ClaimRef>, revision: u64) {
        self.look(|queue| {
            for claim in claims {
                queue.note_sent(claim, revision, self.sent);
            }
        });
    }
}

impl Items {
    pub(crate) fn new(link: Link, options: NatsOptions) -> Self {
        Self {
            logs: Arc::default(),
            link,
            options,
            clock: SystemClock::new(),
        }
    }

    /// The queue's log. Makes the streams of items, if there are none.
    async fn log(&self, queue: &QueueName) -> Result<Arc<Log<Queue>>, StoreError> {
        let open = async {
            let (logs, snaps) = log::streams_ready(&self.link, &self.options).await?;
            for stream in [&logs, &snaps] {
                if self.link.replicated && !stream.replicated {
                    return Err(on_one(&stream.name));
                }
            }
            Ok(Logs::new(logs, snaps, self.options.names.clone()))
        };
        Ok(self.logs.get_or_try_init(|| open).await?.of(queue))
    }

    /// What one operation may have, in bytes.
    fn room(&self) -> usize {
        log::room(&self.link)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.options.response_timeout
    }

    /// How many grants one operation may say are over.
    fn most_over(&self) -> usize {
        (self.room() / 4096).clamp(1, MOST_OVER)
    }

    pub(crate) async fn put(
        &self,
        queue: &QueueName,
        items: &[NewItem],
    ) -> Result<Vec<Added>, StoreError> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        match self.submit(queue, Op::Put(items.to_vec())).await? {
            Reply::Added(added) => Ok(added),
            Reply::Full { items, bytes } => Err(full(queue, items, bytes)),
            other => Err(another(&other)),
        }
    }

    /// Claims whatever is ready. Where nothing is, as far as this client has seen, it
    /// makes sure of that and writes nothing.
    pub(crate) async fn claim(
        &self,
        queue: &QueueName,
        request: &ClaimRequest,
        max: usize,
    ) -> Result<Answer, StoreError> {
        let begun = self.begin(queue).await?;
        let nothing = |queue: &Queue| queue.nothing_for(request.owner);
        if begun.look(nothing).is_some()
            && let Some(answer) = begun.log.read(nothing, begun.deadline).await?
        {
            return Ok(answer);
        }
        let most = max.min(self.most_over());
        let claim = Op::Claim {
            owner: request.owner,
            ttl: request.ttl,
            label: request.label.clone(),
            max,
            over: begun.look(|queue| queue.sights.over(most)),
        };
        let (answer, revision) = match begun.submit(claim).await? {
            Reply::Claimed(answer, revision) => (answer, revision),
            other => return Err(another(&other)),
        };
        if let Answer::Claimed { items, .. } = &answer {
            begun.note_sent(items.iter().map(|item| &item.claim), revision);
        }
        Ok(match answer {
            Answer::Nothing { next } => {
                let expires = begun.look(|queue| queue.sights.next());
                Answer::Nothing {
                    next: next.into_iter().chain(expires).min(),
                }
            }
            other => other,
        })
    }

    /// Settles claims of items; one outcome for each.
    pub(crate) async fn settle(
        &self,
        queue: &QueueName,
        claims: &[&(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        let mut batches: Vec<&[&(ClaimRef, Settle)]> = Vec::new();
        let most = SETTLE_BYTES.min(self.room() / 4);
        let (mut from, mut size) = (0, 0);
        for (n, (claim, settle)) in claims.iter().enumerate() {
            let one = size_of(claim, settle);
            if size + one > most && n > from {
                batches.push(&claims[from..n]);
                (from, size) = (n, 0);
            }
            size += one;
        }
        batches.push(&claims[from..]);
        let batches = batches.into_iter().filter(|batch| !batch.is_empty());
        let settled = join_all(batches.map(|batch| self.settle_batch(queue, batch))).await;
        settled.into_iter().flatten().collect()
    }

    async fn settle_batch(
        &self,
        queue: &QueueName,
        claims: &[&(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>> {
        match self.try_settle(queue, claims).await {
            Ok(settled) => settled.into_iter().map(Ok).collect(),
            Err(error) => claims.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn try_settle(
        &self,
        queue: &QueueName,
        claims: &[&(ClaimRef, Settle)],
    ) -> Result<Vec<Settled>, StoreError> {
        let begun = self.begin(queue).await?;
        let op = begun.look(|queue| {
            let one = |(claim, settle): &&(ClaimRef, Settle)| OneSettle {
                claim: claim.clone(),
                settle: cut(settle),
                seen: queue.seen(claim),
            };
            Op::Settle(claims.iter().map(one).collect())
        });
        let (settled, revision) = match begun.submit(op).await? {
            Reply::Settled(settled, revision) if settled.len() == claims.len() => {
                (settled, revision)
            }
            other => return Err(another(&other)),
        };
        let extended = claims.iter().zip(&settled);
        let extended = extended.filter(|((_, settle), settled)| {
            matches!((settle, settled), (Settle::Extend(_), Settled::Done))
        });
        begun.note_sent(extended.map(|((claim, _), _)| claim), revision);
        Ok(settled)
    }

    pub(crate) async fn abandon(&self, queue: &QueueName, owner: Owner) -> Result<(), StoreError> {
        let begun = self.begin(queue).await?;
        let mut over = begun.look(|queue| queue.over_of(owner));
        over.truncate(self.most_over());
        match begun.submit(Op::Abandon { owner, over }).await? {
            Reply::Abandoned => Ok(()),
            other => Err(another(&other)),
        }
    }

    pub(crate) async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        let begun = self.begin(queue).await?;
        let over = begun.look(|queue| queue.over_at(lane));
        let fence = Op::Fence {
            lane: lane.clone(),
            at_least,
            when,
            over: over.into_iter().collect(),
        };
        match begun.submit(fence).await? {
            Reply::Fenced(mark) => Ok(mark),
            other => Err(another(&other)),
        }
    }

    pub(crate) async fn requeue(
        &self,
        queue: &QueueName,
        item: ItemId,
    ) -> Result<bool, StoreError> {
        match self.submit(queue, Op::Requeue(item)).await? {
            Reply::Requeued(was_dead) => Ok(was_dead),
            other => Err(another(&other)),
        }
    }

    pub(crate) async fn depth(&self, queue: &QueueName) -> Result<Depth, StoreError> {
        let deadline = self.deadline();
        self.log(queue).await?.read(Queue::depth, deadline).await
    }

    /// Pages of what is there at the beginning; what is put later is not waited for.
    pub(crate) fn items(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>> {
        let (this, queue) = (self.clone(), queue.clone());
        let pages = stream::unfold(Some((None, None)), move |place| {
            let (this, queue) = (this.clone(), queue.clone());
            async move {
                let (after, end): (Option<u64>, Option<u64>) = place?;
                let look = move |queue: &Queue| {
                    (
                        queue.page(dead, after, PAGE),
                        end.unwrap_or(queue.end_place()),
                    )
                };
                let looked = async {
                    let deadline = this.deadline();
                    this.log(&queue).await?.read(look, deadline).await
                };
                let (mut page, end) = match looked.await {
                    Ok(looked) => looked,
                    Err(error) => return Some((vec![Err(error)], None)),
                };
                let last = page.last().map(|(place, _)| *place);
                let next = (page.len() == PAGE).then_some((last, Some(end)));
                page.retain(|(place, _)| *place < end);
                let page = page.into_iter().map(|(_, state)| Ok(state)).collect();
                Some((page, next))
            }
        });
        pages.flat_map(|page: Vec<_>| stream::iter(page)).boxed()
    }

    pub(crate) async fn watch(
        &self,
        queue: &QueueName,
    ) -> Result<BoxStream<'static, ()>, StoreError> {
        let (deadline, log) = (self.deadline(), self.log(queue).await?);
        let mut changes = log.changes();
        let hint = log.read(Queue::hint, deadline).await?;
        changes.mark_unchanged();
        let hints = stream::unfold(
            (log, changes, hint),
            |(log, mut changes, hint)| async move {
                loop {
                    let now = log.peek(Queue::hint);
                    if now != hint {
                        return Some(((), (log, changes, now)));
                    }
                    changes.changed().await.ok()?;
                }
            },
        );
        Ok(hints.boxed())
    }

    /// Why an owner is given nothing any more, as far as this client has seen.
    pub(crate) fn tombstone(&self, queue: &QueueName, owner: Owner) -> Option<RefusedReason> {
        self.logs
            .get()?
            .opened(queue)?
            .peek(|queue| queue.tombstone(owner))
    }

    async fn submit(&self, queue: &QueueName, op: Op) -> Result<Reply, StoreError> {
        let deadline = self.deadline();
        self.log(queue).await?.submit(op, deadline).await
    }

    /// Reads the log to its end if that was not done yet, so that there is something to
    /// decide by.
    async fn begin(&self, queue: &QueueName) -> Result<Beginning, StoreError> {
        let sent = self.clock.now();
        let deadline = self.deadline();
        let log = self.log(queue).await?;
        log.ready(deadline).await?;
        Ok(Beginning {
            history: log.history(),
            log,
            deadline,
            sent,
        })
    }
}
