//! The contract between a queue's store and everything above it.
//!
//! Implement [`QueueStore`] and run both suites of `lease-conformance` against it:
//! the queue's own, and, through the adapter for keyed leases, that of leases.
//!
//! # To be correct, every operation
//! * is atomic at the store, has exactly one point at which it takes effect, and
//!   checks the owner, the token and the expiry *there*;
//! * judges time by the store's clock, or as its guarantees say;
//! * answers with an unknown outcome when it may have taken effect and no answer says
//!   so, and as unavailable only when it certainly had none;
//! * may be dropped at any `.await`: the request may or may not take effect then, and
//!   nothing else is harmed;
//! * never panics on what a server answers.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lease_core::{
    Diagnosis, FenceWhen, Guarantees, Holder, Key, KeyState, Label, LostCause, Owner,
    RefusedReason, StoreError, TakenOver, Token, TokenRule, Ttl,
};

use crate::item::{ClaimRef, Claimed, ItemId, ItemState, NewItem};
use crate::name::{Lane, QueueName};

/// The most bytes of a payload: larger ones belong elsewhere, with their address in
/// the queue.
pub const MAX_BODY_BYTES: usize = 512 * 1024;

/// The most items that one request puts, claims or extends.
pub const MAX_BATCH: usize = 256;

/// The longest delay of an item.
pub const MAX_DELAY: Duration = Ttl::MAX.get();

/// What a store of queues can do, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// What its leases promise: exclusion, what tokens survive, TTLs, wake-ups. The
    /// same for claims and for keyed leases.
    pub guarantees: Guarantees,
    /// Items. A store without them keeps the token items of keys alone, for leases:
    /// what is asked of items is answered as [`check_items`](crate::check_items) says.
    pub items: bool,
    /// Groups: one owner at a time, first in, first out.
    pub groups: bool,
    /// Items that cannot be claimed before a time.
    pub delay: bool,
    /// How long after its completion an item still keeps another one with its
    /// deduplication key away.
    pub dedup_window: Duration,
    /// The most bytes of a payload.
    pub max_body: usize,
    /// The most bytes of the payloads of one put, together.
    pub max_put: usize,
}

impl Capabilities {
    /// All of it, with leases of these guarantees.
    #[must_use]
    pub fn new(guarantees: Guarantees) -> Self {
        Self {
            guarantees,
            items: true,
            groups: true,
            delay: true,
            dedup_window: lease_core::TOMBSTONE_RETENTION,
            max_body: MAX_BODY_BYTES,
            max_put: MAX_BATCH * MAX_BODY_BYTES,
        }
    }
}

/// What [`QueueStore::put`] answers for one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is in the queue now, or was put by an earlier copy of this request.
    Added,
    /// Another item has its deduplication key.
    Duplicate {
        /// That item.
        of: ItemId,
    },
}

/// What a claim asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Whatever is ready, the longest ready first, at most so many items
    /// (1 to [`MAX_BATCH`]) of as many lanes. The tokens follow
    /// [`TokenRule::NEXT`]. The same owner asking again is given more: whoever does
    /// not know what came of the first request abandons its owner instead.
    Next {
        /// How many.
        max: usize,
    },
    /// The token item of this key, made when there is none: a keyed lease.
    Key {
        /// The key.
        key: Key,
        /// Which token.
        rule: TokenRule,
        /// Whether whoever asks waits, as [`AcquireRequest::waits`] says it. A store
        /// whose guarantees say [`WaiterOrder::Fifo`] serves them in order.
        ///
        /// [`AcquireRequest::waits`]: lease_core::AcquireRequest::waits
        /// [`WaiterOrder::Fifo`]: lease_core::WaiterOrder::Fifo
        waits: Option<Duration>,
    },
}

/// What [`QueueStore::claim`] asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// This acquisition's owner, new for each: the owner of every claim that it gets.
    pub owner: Owner,
    /// How long the claim lasts.
    pub ttl: Ttl,
    /// For people.
    pub label: Label,
    /// What.
    pub what: What,
}

/// What [`QueueStore::claim`] answers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// These are the owner's; at least one. Of a [`What::Key`] exactly one, with an
    /// empty payload.
    Claimed {
        /// The claims.
        items: Vec<Claimed>,
        /// Of a [`What::Key`]: whose grant ended without a release right before.
        taken_over: Option<TakenOver>,
        /// Of a [`What::Key`]: the store asked its server more than once, as
        /// [`Granted::repeated`](lease_core::Granted::repeated) says. Items are never
        /// asked for twice.
        repeated: bool,
    },
    /// Nothing is ready. After `next`, by the store's clock, something becomes so by
    /// itself: a delay ends, or a claim expires. `None`: nothing does.
    Nothing {
        /// How long that takes.
        next: Option<Duration>,
    },
    /// Of a [`What::Key`]: another owner's grant stands in the way, or, of one that does
    /// not wait, those who do.
    Held(Holder),
    /// Not now, or not ever: this owner was abandoned, say.
    Refused(RefusedReason),
}

/// What a claim's owner does with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settle {
    /// It lasts at least so long from now on; a live claim is never shortened.
    Extend(Ttl),
    /// The item is done and leaves the queue. Not for a token item.
    Complete,
    /// The item goes back to its place, the head of its group, and the claim ends.
    /// (Of a token item: its key is free. Neither a delay nor a count is kept of it.)
    Retry {
        /// It cannot be claimed before this has passed: up to [`MAX_DELAY`]. Its
        /// group waits for it.
        delay: Duration,
        /// Whether this attempt counts.
        counts: bool,
        /// What went wrong, for people.
        error: Option<String>,
    },
    /// The item is set aside until somebody looks, and its group goes on. Not for a
    /// token item.
    Bury {
        /// Why, for people.
        reason: String,
    },
}

/// What [`QueueStore::settle`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It took effect, now.
    Done,
    /// This very claim was completed, retried or buried before, by an earlier copy of
    /// this request or by another one of its owner's. Nothing was changed, whoever has
    /// the item by now. A store tells this for
    /// [`TOMBSTONE_RETENTION`](lease_core::TOMBSTONE_RETENTION), and says
    /// [`Lost`](Self::Lost) with [`LostCause::Released`] or `Unknown` afterwards. Of a
    /// key's claim it is told only until the key is claimed again: from then on that
    /// is [`LostCause::TakenOver`]. Never the answer of an extension.
    Before,
    /// The claim is not live. Nothing was changed.
    Lost(LostCause),
}

/// How full a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Depth {
    /// Items that may be claimed now or once their group is free.
    pub ready: u64,
    /// Items whose delay has not ended.
    pub delayed: u64,
    /// Items that are claimed, by a claim that is live.
    pub in_flight: u64,
    /// Items that were buried.
    pub dead: u64,
    /// How long ago the oldest item was put that is not dead, by the store's clock.
    pub oldest: Option<Duration>,
}

/// A store of queues.
///
/// Read the module's page first: it holds what every operation must keep. There are no
/// default methods, so that a wrapper cannot lose one. Token items never show in
/// [`depth`](Self::depth), [`items`](Self::items) or [`What::Next`]; a lane's mark
/// outlives its items as the guarantees say of tokens.
#[async_trait]
pub trait QueueStore: fmt::Debug + Send + Sync + 'static {
    /// What this store can do. No round trip.
    fn capabilities(&self) -> Capabilities;

    /// Puts items at the end of the queue, which exists from then on.
    ///
    /// **Effect.** Each item is in the queue, in the order given, or is a duplicate.
    /// All of them take effect at once, or none. An item whose identity is known already
    /// (in the queue, or settled within the tombstones' time) is left as it is and
    /// answered with [`Added::Added`], so that a put may be repeated.
    ///
    /// **For correctness.** Once this returns, the items survive what the guarantees
    /// say of tokens.
    ///
    /// **Outcomes.** One per item, in order. Hints to those who wait.
    ///
    /// # Errors
    /// As on the module's page; what [`check_put`](crate::check_put) says.
    ///
    /// # Cancel safety
    /// May or may not have taken effect; repeat it with the same identities.
    async fn put(&self, queue: &QueueName, items: &[NewItem]) -> Result<Vec<Added>, StoreError>;

    /// Asks for items, or for a key.
    ///
    /// **Effect.** For [`What::Next`]: from lanes that nobody owns, each lane's head is
    /// claimed, if its delay has ended, for `ttl` from now on, and its attempts rise by
    /// one. The claim of another owner whose time is over is taken over. No lane ever has
    /// two live owners, and a group's items are claimed in the order of their puts, each
    /// when the one before it was completed or buried.
    /// For [`What::Key`]: as `LeaseBackend::acquire`, the repeated request of an owner
    /// included.
    ///
    /// The token of a lane is the greatest of its mark + 1 and the store's clock in
    /// microseconds since the Unix epoch (`after` + 1 where the rule says so).
    ///
    /// **Outcomes.** See [`Answer`]. A store that asked its server more than once, so
    /// that an earlier copy may yet take effect, answers with an unknown outcome, unless
    /// it was a key that was claimed: it says so then.
    ///
    /// # Errors
    /// As on the module's page; what [`check_claim`](crate::check_claim) says.
    ///
    /// # Cancel safety
    /// A dropped call may have taken effect or may yet do so. The caller abandons the
    /// owner.
    async fn claim(&self, queue: &QueueName, request: &ClaimRequest) -> Result<Answer, StoreError>;

    /// Extends, completes, retries or buries what is claimed.
    ///
    /// **Effect.** For each, only while exactly this claim (item, owner, token) is live:
    /// what [`Settle`] says. Anything else changes nothing: not the item, not its owner
    /// by then, not that owner's deadline. One claim's outcome does not depend on
    /// another's.
    ///
    /// **Outcomes.** One per claim, in order.
    ///
    /// # Errors
    /// In each outcome, as on the module's page; what [`check_settle`](crate::check_settle) says, and more
    /// than [`MAX_BATCH`] claims need not be taken.
    ///
    /// # Cancel safety
    /// Any of them may have taken effect; repeating is safe and answers
    /// [`Settled::Before`] then.
    async fn settle(
        &self,
        queue: &QueueName,
        claims: &[(ClaimRef, Settle)],
    ) -> Vec<Result<Settled, StoreError>>;

    /// Gives an acquisition up.
    ///
    /// **Effect.** Frees whatever this owner claimed in the queue (of `key` alone, if
    /// one is given), without counting the attempt, and leaves a tombstone for the owner,
    /// **even for one never seen**, longer than any request can still be under way. Where
    /// it waits in the line of `key` it leaves it.
    ///
    /// # Errors
    /// As on the module's page; retry.
    ///
    /// # Cancel safety
    /// May or may not have taken effect; repeat it.
    async fn abandon(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
        owner: Owner,
    ) -> Result<(), StoreError>;

    /// Raises a lane's high-water mark, as `LeaseBackend::fence` does: a claim below it
    /// is revoked, at once or at its expiry. The item goes back to its place then, and
    /// the attempt counts, as one that expired.
    ///
    /// **Outcomes.** The mark after it.
    ///
    /// # Errors
    /// As on the module's page; above `Token::MAX_FENCE` it is `InvalidInput`.
    ///
    /// # Cancel safety
    /// May or may not have taken effect; repeating it is safe.
    async fn fence(
        &self,
        queue: &QueueName,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError>;

    /// Looks at one key's lane, as `LeaseBackend::inspect`.
    ///
    /// # Errors
    /// As on the module's page.
    async fn inspect(&self, queue: &QueueName, key: &Key) -> Result<KeyState, StoreError>;

    /// Every key with a mark that starts with `prefix`, as `LeaseBackend::list`.
    fn keys(
        &self,
        queue: &QueueName,
        prefix: &str,
    ) -> BoxStream<'static, Result<KeyState, StoreError>>;

    /// The queue's items, the dead ones alone or the others alone, the oldest first as
    /// far as the store can. Pages or a scan; ends while items are being added.
    fn items(
        &self,
        queue: &QueueName,
        dead: bool,
    ) -> BoxStream<'static, Result<ItemState, StoreError>>;

    /// Puts a dead item back at the end of its group, or among the ready ones, with its
    /// attempts at zero.
    ///
    /// **Outcomes.** Whether it was dead.
    ///
    /// # Errors
    /// As on the module's page.
    ///
    /// # Cancel safety
    /// May or may not have taken effect; repeating it is safe.
    async fn requeue(&self, queue: &QueueName, item: ItemId) -> Result<bool, StoreError>;

    /// How full the queue is. All zero for one never seen.
    ///
    /// # Errors
    /// As on the module's page.
    async fn depth(&self, queue: &QueueName) -> Result<Depth, StoreError>;

    /// Hints that something may be ready in the queue, or that this key may be free.
    ///
    /// As `LeaseBackend::watch`: returns once the subscription stands, and is not waited
    /// for meanwhile; hints may be lost, late or spurious. An item that is put or given back with a delay is hinted
    /// at as well: whoever sleeps until an [`Answer::Nothing`]'s `next` must ask again,
    /// since something may become ready before that.
    ///
    /// # Errors
    /// As on the module's page.
    ///
    /// # Cancel safety
    /// Dropping the future or the stream ends the subscription.
    async fn watch(
        &self,
        queue: &QueueName,
        key: Option<&Key>,
    ) -> Result<BoxStream<'static, ()>, StoreError>;

    /// Looks at the real store and says what follows for a claim of `ttl`.
    ///
    /// # Errors
    /// As of `LeaseBackend::diagnose`.
    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError>;
}
