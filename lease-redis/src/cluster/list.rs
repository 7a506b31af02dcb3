//! Every key of every primary, page by page.
//!
//! A slot may move meanwhile, and its keys with it, from a primary that has not
//! been looked through to one that has. So there are rounds: whoever has a slot
//! that did not stay where it was is looked through once more, until each slot
//! has stayed for a round. Slots that move later have been seen.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use lease_core::{Key, KeyState, StoreError};

use super::map::Map;
use super::part::Part;
use super::route::Router;
use crate::address::Address;
use crate::list::scan;
use crate::names::Names;
use crate::request::Request;

/// Keys that are looked at side by side.
const AT_ONCE: usize = 128;
/// Who moves slots without an end can do so without us.
const MOST_ROUNDS: usize = 30;
/// For the nodes to hear of a slot that has just moved: they gossip each second.
const MOST_LOOKS: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);

type Item = Result<KeyState, StoreError>;

struct List<F> {
    router: F,
    names: Names,
    pattern: String,
    /// SCAN may give a name more than once, and so may two nodes.
    seen: HashSet<Key>,
    ready: VecDeque<Item>,
    ended: bool,
    rounds: usize,
    /// Slots of which a key may have been missed.
    todo: HashSet<u16>,
    /// Those of them that are on their way, and stayed so for a round.
    half: HashSet<u16>,
    /// As the round began.
    places: Option<Places>,
    /// Nodes to look through, the first from this cursor on.
    left: VecDeque<Address>,
    cursor: u64,
}

/// The states of the keys that start with `prefix`.
pub(crate) fn stream<F>(router: F, names: Names, prefix: &str) -> BoxStream<'static, Item>
where
    F: Fn() -> Result<Arc<Router>, StoreError> + Send + 'static,
{
    let list = List {
        router,
        pattern: names.pattern(prefix),
        names,
        seen: HashSet::new(),
        ready: VecDeque::new(),
        ended: false,
        rounds: 0,
        todo: HashSet::new(),
        half: HashSet::new(),
        places: None,
        left: VecDeque::new(),
        cursor: 0,
    };
    stream::unfold(list, |mut list| async move {
        let item = list.next().await?;
        Some((item, list))
    })
    .boxed()
}

impl<F: Fn() -> Result<Arc<Router>, StoreError>> List<F> {
    async fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.ended {
                return None;
            }
            if let Err(error) = self.step().await {
                // Behind what was read before it: it is the last.
                self.ended = true;
                self.ready.push_back(Err(error));
            }
        }
    }

    /// One page, or the end of a round.
    async fn step(&mut self) -> Result<(), StoreError> {
        let router = (self.router)()?;
        let Some(address) = self.left.front() else {
            return self.round(&router).await;
        };
        let node = router.node(address)?;
        let (cursor, found) = scan(node.link(), self.cursor, &self.pattern)
            .await
            .map_err(|error| node.names(error))?;
        let keys = found
            .into_iter()
            .filter_map(|name| self.names.key_of(std::str::from_utf8(&name).ok()?))
            .filter(|key| self.seen.insert(key.clone()));
        let keys: Vec<_> = keys.collect();
        self.cursor = cursor;
        if cursor == 0 {
            self.left.pop_front();
        }
        self.look_at(&router, keys).await
    }

    async fn look_at(&mut self, router: &Router, keys: Vec<Key>) -> Result<(), StoreError> {
        let states = keys.into_iter().map(|key| {
            let request = Request::inspect(&self.names, &key);
            async move {
                let reply = router.ask(&request).await?;
                Ok::<_, StoreError>((reply.state(&key), key))
            }
        });
        let states: Vec<_> = stream::iter(states.collect::<Vec<_>>())
            .buffered(AT_ONCE)
            .collect()
            .await;
        for state in states {
            match state? {
                // It ended between the scan and the look.
                (Ok(state), _) if state.high_water.is_none() => {}
                (Ok(state), _) => self.ready.push_back(Ok(state)),
                // Something foreign at one name hides no other key.
                (Err(error), key) => {
                    tracing::warn!(target: lease_core::UNREADABLE, %key, %error, "skipped in a list")
                }
            }
        }
        Ok(())
    }

    /// Judges the round that ends, and finds out who is to be looked through
    /// next.
    async fn round(&mut self, router: &Router) -> Result<(), StoreError> {
        let now = places(router).await?;
        match self.places.take() {
            None => self.todo.extend(now.keys()),
            Some(before) => self.tick_off(&before, &now),
        }
        let nodes: HashSet<_> = self
            .todo
            .iter()
            .filter_map(|slot| now.get(slot))
            .flat_map(|place| place.owners.iter().chain(&place.getting))
            .collect();
        self.left = nodes.into_iter().cloned().collect();
        self.cursor = 0;
        self.places = Some(now);
        self.ended = self.left.is_empty();
        self.rounds += 1;
        if self.rounds > MOST_ROUNDS && !self.ended {
            return Err(StoreError::unavailable(
                "the slots of the Redis Cluster move from node to node faster than its keys can \
                 be listed; list them when the slots rest",
            ));
        }
        Ok(())
    }

    /// A slot is done when it stayed where it is for a whole round. One that
    /// stays on its way needs two: what left the old place before that was looked
    /// through is at the new one in the second.
    fn tick_off(&mut self, before: &Places, now: &Places) {
        let half = &mut self.half;
        self.todo.retain(|slot| {
            let place = now.get(slot);
            let stayed = place == before.get(slot);
            let whole = place.is_none_or(Place::is_whole);
            match stayed {
                true if whole || half.contains(slot) => false,
                true => half.insert(*slot),
                false => {
                    half.remove(slot);
                    true
                }
            }
        });
    }
}

/// Where the keys of each slot are.
type Places = HashMap<u16, Place>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    /// One; or two, while a slot is handed over and the old one has not heard.
    owners: BTreeSet<Address>,
    /// Some of its keys may be here already.
    getting: BTreeSet<Address>,
}

impl Place {
    fn is_whole(&self) -> bool {
        self.owners.len() == 1 && self.getting.is_empty()
    }
}

/// By each primary's own word: the others hear later of a slot that has moved.
async fn places(router: &Router) -> Result<Places, StoreError> {
    for _ in 0..MOST_LOOKS {
        router.look().await?;
        let map = router.map();
        let places = together(&parts(router, &map).await?);
        if map.covered().all(|slot| places.contains_key(&slot)) {
            return Ok(places);
        }
        // It went to somebody whom the map does not show yet.
        tokio::time::sleep(PAUSE).await;
    }
    Err(StoreError::unavailable(
        "the nodes of the Redis Cluster do not agree on who has which slot; list its keys when \
         they do",
    ))
}

/// What each primary says of itself: those with slots, and whoever else they
/// know, who may be getting its first one.
async fn parts(router: &Router, map: &Map) -> Result<Vec<(Address, Part)>, StoreError> {
    let mut parts = Vec::new();
    // The same node may be known by two addresses.
    let (mut asked, mut known) = (HashSet::new(), HashSet::new());
    let mut left: VecDeque<_> = map.primaries().map(|one| (None, one.clone())).collect();
    while let Some((id, address)) = left.pop_front() {
        if id.is_some_and(|id| asked.contains(&id)) || !known.insert(address.clone()) {
            continue;
        }
        let part = router.node(&address)?.part().await?;
        let others = part.others().iter().cloned();
        left.extend(others.map(|(id, address)| (Some(id), address)));
        if asked.insert(part.id().to_owned()) {
            parts.push((address, part));
        }
    }
    Ok(parts)
}

fn together(parts: &[(Address, Part)]) -> Places {
    let mut places = Places::new();
    for (owner, part) in parts {
        for slot in part.slots() {
            let place = places.entry(slot).or_default();
            place.owners.insert(owner.clone());
        }
    }
    for (node, part) in parts {
        for slot in part.getting() {
            if let Some(place) = places.get_mut(slot) {
                place.getting.insert(node.clone());
            }
        }
    }
    places
}
