//! One store out of many independent ones: what a majority says, counts.
//!
//! Redlock (<https://redis.io/docs/latest/develop/use/patterns/distributed-locks/>)
//! with what Kleppmann's critique of it asks for
//! (<https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>):
//! a fencing token that a majority has agreed on before anybody sees it.

mod acquire;
mod attempts;
mod background;
mod claims;
mod clock;
mod failures;
mod fan_out;
mod fence;
mod give_back;
mod handed;
mod listing;
mod pace;
mod release;
mod renew;
mod unsettled;
mod view;
mod votes;
mod watch;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use crate::backend::{
    AcquireOutcome, AcquireRequest, FenceWhen, KeyState, LeaseBackend, ReleaseOutcome,
    RenewOutcome, RenewRequest, Session,
};
use crate::diagnosis::Diagnosis;
use crate::error::{InvalidInput, StoreError};
use crate::guarantees::{CrashRelease, Guarantees};
use crate::key::{Key, Label};
use crate::owner::Owner;
use crate::retry::Chance;
use crate::rules::QuorumRules;
use crate::token::Token;
use crate::ttl::Ttl;

use attempts::Attempts;
use background::Upkeep;
pub use failures::NodeFailures;
use handed::Handed;
use pace::Pace;
use unsettled::Unsettled;

/// A lease over any number of independent stores, the nodes: held while a
/// majority of them says so.
///
/// Any minority may be out of reach, slow, or lost. A node that may come back
/// **empty** must refuse grants until the longest TTL has passed (its
/// quarantine), or exclusion is gone: see what
/// [`guarantees`](LeaseBackend::guarantees) and
/// [`diagnose`](LeaseBackend::diagnose) say of the nodes. All clients must name
/// the same nodes.
///
/// # How a key is acquired
/// All nodes are asked at once. When a majority has granted, and not all the same
/// token, T is a little above the largest; every node is asked for exactly T, and
/// only those that stand at exactly T count. With a majority at T it is handed
/// out: two round trips, or one where a majority names one token at once, as it
/// does when a key was released a moment ago. Any two majorities share a node, and
/// that node's mark is at least T, so the next token is above it.
///
/// Tokens follow the nodes' clocks: a node that answers later names a higher one,
/// and cannot go back to a lower one. T is ahead by at least a quarter of a second,
/// so that such a node is brought to it as well, in the background. One known to
/// be much slower than the others, or ahead of them, is asked for T only; and for
/// a token of its own where it is needed for a majority, or the others have not
/// answered within four times their usual time. So nobody waits for it, and it has
/// its part in every lease.
///
/// A grant on less than a majority is given back, in the background where a node
/// is slow.
///
/// # An owner
/// is for one acquisition of one client, as everywhere. When it asks again its lease
/// keeps its token, or the outcome is unknown where too few nodes answer to tell it;
/// a copy that another client sends at the same time may, rarely, end at a higher
/// one, and the lease is lost. It is refused when a request of its own may still be
/// under way after it was told *held*: take a new one then, as
/// [`Leases`](crate::Leases) does.
///
/// # Runtime
/// What outlives a call runs on the tokio runtime of that call. Without one,
/// every operation but those that only look answers an error.
#[derive(Clone)]
pub struct Quorum {
    inner: Arc<Inner>,
}

/// One of the stores.
struct Node {
    name: String,
    backend: Arc<dyn LeaseBackend>,
    upkeep: Upkeep,
    pace: Pace,
}

struct Inner {
    nodes: Vec<Arc<Node>>,
    majority: usize,
    guarantees: Guarantees,
    rules: QuorumRules,
    chance: Chance,
    unsettled: Unsettled,
    handed: Handed,
    attempts: Attempts,
}

impl Quorum {
    /// A quorum over these nodes. Each name is shown in errors and findings:
    /// a host, never a URL with a password in it.
    ///
    /// A majority of an even number of nodes is one more than half: four
    /// nodes bear the loss of one, as three do.
    ///
    /// # Errors
    /// [`InvalidInput::QuorumNodes`] without nodes, with a name that is empty,
    /// not printable or given twice, when no TTL suits all nodes, or with a node
    /// whose grants end with its client's session.
    pub fn new<S: Into<String>>(
        nodes: impl IntoIterator<Item = (S, Arc<dyn LeaseBackend>)>,
    ) -> Result<Self, InvalidInput> {
        Self::build(nodes, QuorumRules::ALL, Chance::from_system())
    }

    /// A quorum with some rule taken out, to show that the rule is needed, and
    /// with one seed for its pauses.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[cfg(feature = "broken-rules")]
    pub fn broken<S: Into<String>>(
        nodes: impl IntoIterator<Item = (S, Arc<dyn LeaseBackend>)>,
        rules: QuorumRules,
        seed: u64,
    ) -> Result<Self, InvalidInput> {
        Self::build(nodes, rules, Chance::seeded(seed))
    }

    fn build<S: Into<String>>(
        nodes: impl IntoIterator<Item = (S, Arc<dyn LeaseBackend>)>,
        rules: QuorumRules,
        chance: Chance,
    ) -> Result<Self, InvalidInput> {
        let nodes: Vec<_> = nodes
            .into_iter()
            .map(|(name, backend)| {
                Arc::new(Node {
                    name: name.into(),
                    backend,
                    upkeep: Upkeep::default(),
                    pace: Pace::default(),
                })
            })
            .collect();
        check(&nodes)?;
        let more_than_half = nodes.len() / 2 + 1;
        Ok(Self {
            inner: Arc::new(Inner {
                guarantees: claims::guarantees(&nodes, more_than_half)?,
                majority: match rules.majority {
                    true => more_than_half,
                    false => (nodes.len() / 2).max(1),
                },
                nodes,
                rules,
                chance,
                unsettled: Unsettled::default(),
                handed: Handed::default(),
                attempts: Attempts::default(),
            }),
        })
    }

    /// The nodes' names, in the order in which they were given.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.inner.nodes.iter().map(|node| node.name.as_str())
    }

    /// How many nodes must agree.
    #[must_use]
    pub fn majority(&self) -> usize {
        self.inner.majority
    }
}

fn check(nodes: &[Arc<Node>]) -> Result<(), InvalidInput> {
    let wrong = |what: String| Err(InvalidInput::QuorumNodes { what });
    if nodes.is_empty() {
        return wrong("a quorum needs at least one node".into());
    }
    let mut names = BTreeSet::new();
    for node in nodes {
        // What a label may hold, a name may.
        if node.name.trim().is_empty() || Label::new(&node.name).is_err() {
            return wrong("a node's name is short, printable text".into());
        }
        if !names.insert(&node.name) {
            return wrong(format!("the node {:?} is named twice", node.name));
        }
        if let CrashRelease::SessionLost { .. } = node.backend.guarantees().crash_release {
            return wrong(format!(
                "the node {:?} ends grants with its client's session, and no quorum keeps sessions; \
                 open it without crash detection",
                node.name
            ));
        }
    }
    Ok(())
}

impl Inner {
    /// How many nodes may fail.
    fn spare(&self) -> usize {
        self.nodes.len() - self.majority
    }
}

impl fmt::Debug for Quorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.node_names().collect();
        f.debug_struct("Quorum")
            .field("nodes", &names)
            .field("majority", &self.inner.majority)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl LeaseBackend for Quorum {
    /// As the trait says, on a majority; see [`Quorum`].
    ///
    /// # Errors
    /// `UnknownOutcome` when less than a majority has answered and something
    /// may stand on a node: repeat it, or abandon the owner. The source is
    /// [`NodeFailures`].
    async fn acquire(&self, request: &AcquireRequest) -> Result<AcquireOutcome, StoreError> {
        acquire::acquire(&self.inner, request).await
    }

    /// Done when a majority has a tombstone: no majority can grant this owner
    /// anything from then on. The other nodes are told in the background, again
    /// and again within the retention of tombstones.
    async fn abandon(&self, key: &Key, owner: Owner) -> Result<(), StoreError> {
        release::abandon(&self.inner, key, owner).await
    }

    /// `Renewed` when a majority has the grant; a node that knows it no more
    /// gets it back if it can have exactly its token. `Lost` only when no
    /// majority can be had.
    async fn renew(&self, request: &RenewRequest) -> Result<RenewOutcome, StoreError> {
        let mut outcomes = renew::renew(&self.inner, std::slice::from_ref(request)).await;
        outcomes
            .pop()
            .unwrap_or_else(|| Err(StoreError::unknown_outcome("no outcome for this renewal")))
    }

    async fn renew_many(&self, requests: &[RenewRequest]) -> Vec<Result<RenewOutcome, StoreError>> {
        renew::renew(&self.inner, requests).await
    }

    /// `Released` when a majority released exactly this grant; `NotHeld` when
    /// so many do not have it that no majority can have had it. Once released,
    /// the nodes that did not say so are told to forget the owner.
    async fn release(
        &self,
        key: &Key,
        owner: Owner,
        token: Token,
    ) -> Result<ReleaseOutcome, StoreError> {
        release::release(&self.inner, key, owner, token).await
    }

    /// Done when a majority has raised its mark: each later majority has one of
    /// those nodes in it. The mark is as [`inspect`](LeaseBackend::inspect) shows
    /// it.
    async fn fence(
        &self,
        key: &Key,
        at_least: Token,
        when: FenceWhen,
    ) -> Result<Token, StoreError> {
        fence::fence(&self.inner, key, at_least, when).await
    }

    /// The grant that a majority shows, and the mark that no token handed out is
    /// above. A node's own mark may be higher, by what less than a majority granted
    /// and gave back: that shows only where a node does not answer within a second, or
    /// has no mark, as one that came back empty.
    async fn inspect(&self, key: &Key) -> Result<KeyState, StoreError> {
        view::inspect(&self.inner, key).await
    }

    /// The lists of a majority, merged by key. Since stores list in orders of
    /// their own, all keys are in memory at once.
    fn list(&self, prefix: &str) -> BoxStream<'static, Result<KeyState, StoreError>> {
        listing::list(&self.inner, prefix)
    }

    /// The hints of all nodes that can be watched. One hint comes when so many
    /// nodes have hinted that a majority may be free, or a moment after the
    /// first.
    async fn watch(&self, key: &Key) -> Result<BoxStream<'static, ()>, StoreError> {
        watch::watch(&self.inner, key).await
    }

    /// No node has sessions: see [`new`](Quorum::new).
    async fn ping(&self) -> Result<Session, StoreError> {
        Ok(Session::NONE)
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees.clone()
    }

    /// The findings of all nodes, each with its node's name, and what follows
    /// for the quorum.
    async fn diagnose(&self, ttl: Ttl) -> Result<Diagnosis, StoreError> {
        claims::diagnose(&self.inner, ttl).await
    }
}
