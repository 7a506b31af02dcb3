//! Asks the nodes who has which slot.

use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lease_core::{StoreError, StoreErrorKind};
use rand::seq::SliceRandom;
use redis::{Pipeline, Value};
use tokio::time::Instant;

use super::map::Map;
use super::node::Node;
use super::route::Router;
use crate::address::Address;
use crate::errors::{self, Phase};
use crate::script::spoils;

/// A node that takes longer gets another one beside it.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two looks, of which the first found what was known.
const REST: Duration = Duration::from_millis(200);
/// Between two others.
const SHORT_REST: Duration = Duration::from_millis(20);

/// What is known of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) map: Arc<Map>,
    /// How many looks have ended.
    looks: u64,
    /// Why the last one found nothing.
    error: Option<StoreError>,
    /// The runtime has ended: nobody looks any more.
    pub(super) closed: bool,
}

/// Whether somebody looks.
#[derive(Debug, Default)]
pub(super) struct Looking {
    /// How many looks have begun.
    begun: u64,
    under_way: bool,
    /// Somebody wants one that begins after the one under way.
    wanted: bool,
    /// Not before this.
    next: Option<Instant>,
}

impl Router {
    /// Sees to it that somebody looks soon.
    pub(super) fn refresh(&self) {
        self.order();
    }

    /// Looks, and says what came of it.
    ///
    /// # Cancel safety
    /// Safe: the look goes on for whoever comes next.
    pub(crate) async fn look(&self) -> Result<(), StoreError> {
        let mut known = self.known.subscribe();
        let number = self.order();
        let told = known.wait_for(|known| known.closed || known.looks >= number);
        match told.await {
            Ok(known) if known.looks < number => Err(ended()),
            Ok(known) => known.error.clone().map_or(Ok(()), Err),
            Err(_) => Err(ended()),
        }
    }

    /// The runtime has ended: nobody who waits for a look will see one.
    pub(crate) fn close(&self) {
        self.known.send_modify(|known| known.closed = true);
    }

    /// The number of a look that has not begun yet.
    fn order(&self) -> u64 {
        let (number, begin) = {
            let mut looking = self.looking();
            let number = looking.begun + 1;
            if looking.under_way {
                looking.wanted = true;
                return number;
            }
            looking.under_way = true;
            (number, looking.next)
        };
        let mut unseen = Unseen(Weak::clone(&self.us));
        // Without the lock: a runtime that is shutting down drops it at once.
        self.runtime.spawn(async move {
            if let Some(begin) = begin {
                tokio::time::sleep_until(begin).await;
            }
            if let Some(router) = unseen.0.upgrade() {
                router.look_now().await;
            }
            unseen.is_done();
        });
        number
    }

    async fn look_now(&self) {
        loop {
            {
                let mut looking = self.looking();
                looking.begun += 1;
                looking.wanted = false;
            }
            let found = self.find_map().await;
            let changed = self.learn(found);
            let rest = if changed { SHORT_REST } else { REST };
            let wanted = {
                let mut looking = self.looking();
                looking.next = Some(Instant::now() + rest);
                looking.under_way = looking.wanted;
                looking.wanted
            };
            if !wanted {
                return;
            }
            tokio::time::sleep(rest).await;
        }
    }

    /// Whether that is news.
    fn learn(&self, found: Result<Map, StoreError>) -> bool {
        let mut changed = false;
        self.known.send_modify(|known| {
            known.looks += 1;
            match found {
                Ok(map) => {
                    changed = !map.is_like(&known.map);
                    known.map = Arc::new(map);
                    known.error = None;
                }
                Err(error) => known.error = Some(error),
            }
        });
        if changed {
            let map = self.map();
            self.prune(&map);
        }
        changed
    }

    /// Of several pictures, the first that is not older than what is known, of a
    /// node that serves; a node that was cut off from the others may not know
    /// that it was voted away.
    async fn find_map(&self) -> Result<Map, StoreError> {
        let end = Instant::now() + self.connect_timeout.max(self.response_timeout);
        let known = self.map();
        let mut left = self.candidates(&known).into_iter();
        let mut asked = FuturesUnordered::new();
        let mut best: Option<Map> = None;
        let mut trouble = StoreError::unavailable("the URL of a Redis Cluster names no node");
        loop {
            let last = match left.next() {
                Some(address) => {
                    asked.push(self.ask_for_map(address));
                    false
                }
                None => true,
            };
            let patience = (Instant::now() + PATIENCE).min(end);
            tokio::select! {
                answer = asked.next() => match answer {
                    Some(Ok(map)) if map.serves && map.epoch >= known.epoch => return Ok(map),
                    Some(Ok(map)) => best = Some(later(best, map)),
                    // What is to be put right by somebody says more.
                    Some(Err(error)) if trouble.kind() != StoreErrorKind::Refusing => trouble = error,
                    Some(Err(_)) => {}
                    None => return best.ok_or(trouble),
                },
                () = tokio::time::sleep_until(patience) => {
                    if last && let Some(best) = best {
                        return Ok(best);
                    }
                }
            }
            if Instant::now() >= end {
                return best.ok_or_else(|| match asked.is_empty() {
                    true => trouble,
                    false => StoreError::unavailable(
                        "no node of the Redis Cluster answers in time; check that they run and \
                         can be reached from here",
                    ),
                });
            }
        }
    }

    /// First whoever serves, in any order; then the others.
    fn candidates(&self, known: &Map) -> Vec<Address> {
        let mut all: Vec<_> = known.primaries().cloned().collect();
        all.shuffle(&mut rand::rng());
        let mut others: Vec<_> = self.seeds.addresses().to_vec();
        others.extend(known.replicas().iter().cloned());
        others.shuffle(&mut rand::rng());
        for other in others {
            if !all.contains(&other) {
                all.push(other);
            }
        }
        all
    }

    async fn ask_for_map(&self, address: Address) -> Result<Map, StoreError> {
        let node = self.node(&address)?;
        node.map().await
    }

    fn looking(&self) -> MutexGuard<'_, Looking> {
        self.looking.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn ended() -> StoreError {
    StoreError::unavailable(
        "the runtime ended while it was looking for the nodes of the Redis Cluster; try again",
    )
}

/// The task that looks, as long as it is not done. Dropped before, with its
/// runtime or by a panic, it keeps nobody waiting.
struct Unseen(Weak<Router>);

impl Unseen {
    fn is_done(&mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        let Some(router) = self.0.upgrade() else {
            return;
        };
        let number = {
            let mut looking = router.looking();
            looking.under_way = false;
            looking.wanted = false;
            // Whoever waits does so for the one under way or for the next one.
            looking.begun += 1;
            looking.begun
        };
        router.known.send_modify(|known| {
            known.looks = number;
            known.error = Some(ended());
        });
    }
}

fn later(best: Option<Map>, map: Map) -> Map {
    match best {
        Some(best) if (best.serves, best.epoch) >= (map.serves, map.epoch) => best,
        _ => map,
    }
}

impl Node {
    /// The cluster, as this node sees it.
    pub(crate) async fn map(&self) -> Result<Map, StoreError> {
        let connected = self.link().connection().await;
        let up = connected.map_err(|error| self.names(error))?;
        let mut both = Pipeline::with_capacity(2);
        both.cmd("CLUSTER").arg("SLOTS");
        both.cmd("CLUSTER").arg("INFO");
        let asking = self.link().ask(&up);
        let answers = up.wire.send_all(&both, 2).await;
        match &answers {
            Err(error) if spoils(error) => asking.failed(),
            _ => asking.answered(),
        }
        let doing = format!("cannot ask {} how the Redis Cluster looks", self.address);
        let classify = |error| errors::classify(Phase::Unsent, &doing, error);
        let mut answers = answers.map_err(classify)?.into_iter();
        let (slots, info) = (answers.next(), answers.next());
        let odd = || self.unreadable("CLUSTER SLOTS");
        let slots = slots.ok_or_else(odd)?.extract_error();
        let slots = slots.map_err(classify)?;
        // Without the right to it the map is right most of the time.
        let info = match info {
            Some(Value::BulkString(text)) => String::from_utf8(text).ok(),
            Some(Value::VerbatimString { text, .. }) => Some(text),
            _ => None,
        };
        Map::read(&slots, info.as_deref(), &self.address).ok_or_else(odd)
    }
}
