//! Which node a request goes to, and where to go on when that was the wrong one.

use std::collections::HashMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use lease_core::{StoreError, StoreErrorKind};
use redis::{ErrorKind, RedisError, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::look::{Known, Looking};
use super::map::Map;
use super::node::{Node, Problem, What};
use super::seeds::Seeds;
use super::slot;
use crate::address::Address;
use crate::client::Client;
use crate::reply::{Reply, has_failed, odd};
use crate::request::Request;
use crate::script::{self, Script};
use crate::servers::Servers;

/// Nodes that one request is sent to, one after the other; most need one.
const MOST_HOPS: u32 = 12;
/// Before the third hop; twice as long before each one that follows.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const MOST_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks for another owner, while one node does not answer.
const MOST_PATIENCE: Duration = Duration::from_secs(1);

/// The nodes of a cluster, as one runtime knows them.
pub(crate) struct Router {
    pub(super) us: Weak<Router>,
    pub(super) seeds: Seeds,
    pub(super) connect_timeout: Duration,
    pub(super) response_timeout: Duration,
    pub(super) runtime: Handle,
    script: Arc<Script>,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    pub(super) known: watch::Sender<Known>,
    pub(super) looking: Mutex<Looking>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// A node's, or the driver's.
    Redis(RedisError),
    /// Of the way there, in our own words.
    Store(StoreError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Trouble {
    /// For who speaks the driver's language alone.
    pub(crate) fn into_driver(self) -> RedisError {
        match self {
            Self::Redis(error) => error,
            Self::Store(error) => (
                ErrorKind::Io,
                "no node of the cluster did it",
                error.to_string(),
            )
                .into(),
        }
    }

    /// The node has no such script, and ran nothing.
    pub(crate) fn is_no_script(&self) -> bool {
        matches!(self, Self::Redis(error) if script::is_no_script(error))
    }

    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Self::Redis(error) => script::failed(error),
            Self::Store(error) => error,
        }
    }
}

impl Router {
    pub(crate) fn new(
        seeds: Seeds,
        connect_timeout: Duration,
        response_timeout: Duration,
        script: Arc<Script>,
        runtime: Handle,
    ) -> Arc<Self> {
        Arc::new_cyclic(|us| Self {
            us: Weak::clone(us),
            seeds,
            connect_timeout,
            response_timeout,
            runtime,
            script,
            nodes: Mutex::default(),
            known: watch::Sender::new(Known::default()),
            looking: Mutex::default(),
        })
    }

    /// Does one operation.
    ///
    /// A request is repeated only if the node says that it did nothing, or if it
    /// does no harm twice.
    ///
    /// # Cancel safety
    /// It may or may not take effect.
    pub(crate) async fn ask(&self, request: &Request) -> Result<Reply, StoreError> {
        let slot = slot::of(request.record());
        let answer = self.route(slot, What::Request(request)).await;
        let (answer, doubt) = answer.map_err(Trouble::into_error)?;
        let reply = Reply::all(answer, 1)?.pop().ok_or_else(odd)?;
        match doubt {
            Some(doubt) => reply.of_copies(request, doubt),
            None => Ok(reply),
        }
    }

    /// Sends something to the node of this slot. Beside the answer, why an earlier copy
    /// of it may still be under way, if one may.
    pub(crate) async fn route(
        &self,
        slot: u16,
        what: What<'_>,
    ) -> Result<(Value, Option<StoreError>), Trouble> {
        let mut redirect = None;
        // Why it may have been done already.
        let mut doubt: Option<StoreError> = None;
        let mut last = StoreError::unavailable(RESTLESS);
        for hop in 0..MOST_HOPS {
            if hop > 1 {
                tokio::time::sleep(pause(hop)).await;
            }
            let (node, asking) = match redirect.take() {
                Some((address, asking)) => (self.node(&address)?, asking),
                None => (self.owner(slot).await.map_err(|e| sure(&doubt, e))?, false),
            };
            match self.attempt(&node, slot, what, asking).await {
                // What failed this time may have taken effect before.
                Ok(value) => {
                    return match doubt {
                        Some(doubt) if has_failed(&value) => Err(Trouble::Store(doubt)),
                        doubt => Ok((value, doubt)),
                    };
                }
                Err(Tried::Node(Problem::Moved(address))) => {
                    self.moved(slot, address.clone());
                    redirect = Some((address, false));
                }
                Err(Tried::Node(Problem::Ask(address))) => redirect = Some((address, true)),
                Err(Tried::Node(Problem::Torn(error))) => last = error,
                Err(Tried::Node(Problem::Unreached(error))) => {
                    // Nothing was sent. Somebody else may have the slot by now.
                    let _ = self.look().await;
                    if self.map().owner(slot) == Some(&node.address) {
                        return Err(sure(&doubt, error).into());
                    }
                    last = error;
                }
                Err(Tried::Node(Problem::Gone(error))) => {
                    self.refresh();
                    if doubt.is_some() || !what.may_repeat() {
                        return Err(Trouble::Redis(error));
                    }
                    doubt = Some(script::failed(error));
                }
                Err(Tried::Left) => {
                    doubt.get_or_insert_with(|| StoreError::unknown_outcome(LEFT));
                }
                Err(Tried::Node(Problem::Down(error) | Problem::Failed(error))) => {
                    self.refresh();
                    return Err(match doubt {
                        Some(doubt) => Trouble::Store(doubt),
                        None => Trouble::Redis(error),
                    });
                }
            }
        }
        Err(sure(&doubt, last).into())
    }

    /// One try at one node. It is left when another one turns out to have the
    /// slot, if what was asked for may be repeated there.
    async fn attempt(
        &self,
        node: &Node,
        slot: u16,
        what: What<'_>,
        asking: bool,
    ) -> Result<Value, Tried> {
        let mut sending = pin!(node.send(what, asking));
        let mut known = self.known.subscribe();
        let mut patience = node.link().patience();
        loop {
            tokio::select! {
                biased;
                answer = &mut sending => return answer.map_err(Tried::Node),
                _ = known.changed(), if !asking && what.may_repeat() => {
                    let map = Arc::clone(&known.borrow_and_update().map);
                    if map.owner(slot).is_some_and(|owner| *owner != node.address) {
                        return Err(Tried::Left);
                    }
                }
                () = tokio::time::sleep(patience) => {
                    self.refresh();
                    patience = (patience * 2).min(MOST_PATIENCE);
                }
            }
        }
    }

    /// The node that has the slot, as far as we know.
    pub(crate) async fn owner(&self, slot: u16) -> Result<Arc<Node>, StoreError> {
        if let Some(owner) = self.map().owner(slot) {
            return self.node(owner);
        }
        self.look().await?;
        match self.map().owner(slot) {
            Some(owner) => self.node(owner),
            None => Err(StoreError::unavailable(format!(
                "no node of the Redis Cluster serves slot {slot}, which this key is in; bring its \
                 primary or a replica of it back, or see `lease doctor`"
            ))),
        }
    }

    pub(crate) fn map(&self) -> Arc<Map> {
        Arc::clone(&self.known.borrow().map)
    }

    /// A node said so; whether it is right will be seen.
    fn moved(&self, slot: u16, owner: Address) {
        self.known.send_if_modified(|known| {
            if known.map.owner(slot) == Some(&owner) {
                return false;
            }
            known.map = Arc::new(known.map.with(slot, owner));
            true
        });
        self.refresh();
    }

    pub(crate) fn node(&self, address: &Address) -> Result<Arc<Node>, StoreError> {
        let mut nodes = self.nodes();
        if let Some(node) = nodes.get(address) {
            return Ok(Arc::clone(node));
        }
        let server = Servers::one(self.client(address)?);
        let origin = server.origin(self.connect_timeout, self.response_timeout);
        let node = Node::new(address.clone(), origin, Arc::clone(&self.script));
        let node = Arc::new(node);
        nodes.insert(address.clone(), Arc::clone(&node));
        Ok(node)
    }

    pub(super) fn client(&self, address: &Address) -> Result<Client, StoreError> {
        self.seeds.client(address).map_err(|error| {
            StoreError::with_source(
                StoreErrorKind::Refusing,
                format!(
                    "the Redis Cluster names a node that cannot be connected to, {address}; see \
                     its cluster-announce-ip and cluster-announce-port"
                ),
                error,
            )
        })
    }

    /// Lets go of nodes that are part of the cluster no more.
    pub(super) fn prune(&self, map: &Map) {
        let seeds = self.seeds.addresses();
        let gone: Vec<_> = self
            .nodes()
            .extract_if(|address, _| !map.has(address) && !seeds.contains(address))
            .collect();
        // Outside of the lock: their connections may do something at their end.
        drop(gone);
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Address, Arc<Node>>> {
        self.nodes.lock().unwrap_or_else(|e| e.into_inner())
    }
}

const RESTLESS: &str = "the slot of this key moves from node to node of the Redis Cluster; try \
                        again when it rests";
const LEFT: &str = "a node of the Redis Cluster did not answer before another one took its slot \
                    over; the request may have taken effect";

enum Tried {
    Node(Problem),
    /// Another node has the slot; this one may have done it before.
    Left,
}

/// What is to be said after a try that may have taken effect.
fn sure(doubt: &Option<StoreError>, error: StoreError) -> StoreError {
    match (doubt, error.kind()) {
        (None, _) | (_, StoreErrorKind::UnknownOutcome) => error,
        (Some(doubt), _) => doubt.clone(),
    }
}

fn pause(hop: u32) -> Duration {
    let doublings = hop.saturating_sub(2).min(10);
    let pause = FIRST_PAUSE.saturating_mul(1 << doublings).min(MOST_PAUSE);
    pause.mul_f64(rand::random_range(0.5..=1.0))
}

/// Nothing of the login.
impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}
