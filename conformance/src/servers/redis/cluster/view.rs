//! How the cluster looks just now.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::LIMIT;
use super::{Failover, NODES, RedisCluster, RedisServer, SLOTS, ServerError};

/// Between two looks at six nodes.
const LOOK: Duration = Duration::from_millis(10);

/// The first and the last slot, and the id of their primary.
type SlotRange = (i64, i64, String);
/// The epoch of each primary's slots, by the primary's id.
type Epochs = BTreeMap<String, String>;

/// What a node says of itself.
#[derive(Debug, Default)]
struct Own {
    primary: bool,
    /// The id of its primary.
    follows: Option<String>,
    epoch: u64,
    slots: Vec<(u16, u16)>,
}

impl Own {
    /// Of the lines of CLUSTER NODES, the node's own.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find(|line| line.contains("myself"))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let slots = words.iter().skip(8).filter(|word| !word.starts_with('['));
        let range = |word: &&str| {
            let (first, last) = word.split_once('-').unwrap_or((word, word));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        Some(Self {
            primary: words.get(2)?.contains("master"),
            follows: words
                .get(3)
                .filter(|id| **id != "-")
                .map(|id| (*id).to_owned()),
            epoch: words.get(6)?.parse().ok()?,
            slots: slots.filter_map(range).collect(),
        })
    }

    fn owns(&self, slot: u16) -> bool {
        self.primary && self.slots.iter().any(|(a, b)| (*a..=*b).contains(&slot))
    }
}

/// How often a node looks at the state of the cluster, and a little more.
const NODE_TIMER: Duration = Duration::from_millis(120);

impl RedisCluster {
    /// The slot of a key, as Redis counts it.
    ///
    /// # Errors
    /// If no node answers.
    pub fn slot_of(&self, key: &str) -> Result<u16, ServerError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut last = ServerError::NotRunning;
        for number in 0..NODES {
            let node = self.node((turn + number) % NODES);
            match node.command(&["CLUSTER", "KEYSLOT", key]) {
                Ok(reply) => match reply.integer().and_then(|slot| slot.try_into().ok()) {
                    Some(slot) => return Ok(slot),
                    None => return Err(odd("CLUSTER KEYSLOT")),
                },
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn own(&self, number: usize) -> Result<Own, ServerError> {
        let nodes = self.node(number).command(&["CLUSTER", "NODES"])?;
        Own::parse(nodes.text().unwrap_or_default()).ok_or_else(|| odd("CLUSTER NODES"))
    }

    /// The number of the primary that has this slot: of two that say so, the one
    /// that was chosen later.
    ///
    /// # Errors
    /// If none of those that answer has it.
    pub fn owner_of_slot(&self, slot: u16) -> Result<usize, ServerError> {
        let all = (0..NODES).filter_map(|number| Some((number, self.own(number).ok()?)));
        let owners = all.filter(|(_, own)| own.owns(slot));
        owners
            .max_by_key(|(_, own)| own.epoch)
            .map(|(number, _)| number)
            .ok_or(ServerError::NotRunning)
    }

    /// The number of the primary that has this key.
    ///
    /// # Errors
    /// As of [`owner_of_slot`](Self::owner_of_slot).
    pub fn owner_of(&self, key: &str) -> Result<usize, ServerError> {
        self.owner_of_slot(self.slot_of(key)?)
    }

    /// The number of a replica of this node that answers.
    ///
    /// # Errors
    /// If there is none.
    pub fn replica_of(&self, primary: usize) -> Result<usize, ServerError> {
        let id = Some(&self.nodes[primary].id);
        (0..NODES)
            .find(|number| {
                self.own(*number)
                    .is_ok_and(|own| own.follows.as_ref() == id)
            })
            .ok_or(ServerError::NotRunning)
    }

    /// The numbers of the primaries that have slots, by those that answer.
    #[must_use]
    pub fn primaries(&self) -> Vec<usize> {
        let primary = |number: &usize| {
            self.own(*number)
                .is_ok_and(|own| own.primary && !own.slots.is_empty())
        };
        (0..NODES).filter(primary).collect()
    }

    /// Makes a replica of the key's primary the primary; returns when it is.
    ///
    /// # Errors
    /// If there is no replica, or it does not become the primary.
    pub fn failover(&self, key: &str, how: Failover) -> Result<usize, ServerError> {
        let slot = self.slot_of(key)?;
        let replica = self.replica_of(self.owner_of_slot(slot)?)?;
        self.promote(replica, how)
    }

    /// Makes this replica the primary; returns when it is.
    ///
    /// # Errors
    /// If it does not become one.
    pub fn promote(&self, replica: usize, how: Failover) -> Result<usize, ServerError> {
        let words: &[&str] = match how {
            Failover::Agreed => &["CLUSTER", "FAILOVER"],
            Failover::Forced => &["CLUSTER", "FAILOVER", "FORCE"],
            Failover::Takeover => &["CLUSTER", "FAILOVER", "TAKEOVER"],
        };
        // Until its primary's link is up, and each time that a vote is lost.
        self.until("make a replica the primary", || {
            if self.own(replica)?.primary {
                return Ok(true);
            }
            let _ = self.node(replica).command(words);
            Ok(self.own(replica)?.primary)
        })?;
        Ok(replica)
    }

    /// Waits until a node other than this one is the primary of the slot.
    ///
    /// # Errors
    /// If that takes longer than a minute and a half.
    pub fn until_other_owner(&self, slot: u16, than: usize) -> Result<usize, ServerError> {
        let mut found = than;
        self.until("hand a slot to another node", || {
            found = self.owner_of_slot(slot).unwrap_or(than);
            Ok(found != than)
        })?;
        Ok(found)
    }

    /// Waits until every running node serves and sees the same primaries, of
    /// distinct epochs, and every replica follows its primary.
    ///
    /// # Errors
    /// If that takes longer than a minute and a half.
    pub fn until_settled(&self) -> Result<(), ServerError> {
        self.until("come together as a cluster", || {
            if !self.is_settled()? {
                return Ok(false);
            }
            // News that were under way may turn a node off once more; it acts on
            // them by a timer of its own.
            std::thread::sleep(NODE_TIMER);
            self.is_settled()
        })
    }

    /// Waits until every running node tells clients of every replica. They do so
    /// a second or two after the start.
    ///
    /// # Errors
    /// If that takes longer than a minute and a half.
    pub fn until_replicas_are_named(&self) -> Result<(), ServerError> {
        self.until("name all replicas", || {
            for node in self.nodes() {
                let slots = match node.command(&["CLUSTER", "SLOTS"]) {
                    Err(ServerError::NotRunning | ServerError::Paused) => continue,
                    slots => slots?,
                };
                let mut ids = std::collections::HashSet::new();
                for range in slots.list().unwrap_or_default() {
                    let nodes = range.list().unwrap_or_default().iter().skip(2);
                    ids.extend(nodes.filter_map(|node| node.list()?.get(2)?.text()));
                }
                if ids.len() < NODES {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Whether the primaries that answer know of the same changes.
    pub(super) fn is_of_one_epoch(&self) -> Result<bool, ServerError> {
        let mut epochs = Vec::new();
        for primary in self.primaries() {
            let info = self.node(primary).command(&["CLUSTER", "INFO"])?;
            let mut lines = info.text().unwrap_or_default().lines();
            let epoch = lines.find_map(|line| line.strip_prefix("cluster_current_epoch:"));
            epochs.push(epoch.unwrap_or_default().to_owned());
        }
        Ok(epochs.windows(2).all(|two| two[0] == two[1]))
    }

    fn is_settled(&self) -> Result<bool, ServerError> {
        let mut pictures = Vec::new();
        for node in self.nodes() {
            let serves = match serves(node) {
                Err(ServerError::NotRunning | ServerError::Paused) => continue,
                serves => serves?,
            };
            if !serves || !follows(node)? {
                return Ok(false);
            }
            pictures.push((owners(node)?, epochs(node)?));
        }
        let covered = |(slots, epochs): &(Vec<SlotRange>, Epochs)| {
            let slots: i64 = slots.iter().map(|(a, b, _)| b - a + 1).sum();
            let distinct: BTreeSet<_> = epochs.values().collect();
            slots == i64::from(SLOTS) && distinct.len() == epochs.len()
        };
        Ok(pictures.windows(2).all(|two| two[0] == two[1]) && pictures.iter().all(covered))
    }

    pub(super) fn until(
        &self,
        what: &str,
        mut done: impl FnMut() -> Result<bool, ServerError>,
    ) -> Result<(), ServerError> {
        // A vote that is lost, as on a busy machine, is repeated seconds later.
        let limit = LIMIT * 3;
        let deadline = Instant::now() + limit;
        while !done()? {
            if Instant::now() > deadline {
                return Err(ServerError::TimedOut {
                    what: format!("{what}\n{}", self.picture()),
                    limit,
                });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// What each node knows and has logged, to tell why something does not come.
    fn picture(&self) -> String {
        let mut picture = String::new();
        for node in self.nodes() {
            let nodes = match node.command(&["CLUSTER", "NODES"]) {
                Ok(reply) => reply.text().unwrap_or_default().to_owned(),
                Err(error) => error.to_string(),
            };
            let _ = writeln!(picture, "{}:\n{nodes}\n{}", node.address(), node.log());
        }
        picture
    }
}

/// Whether it takes requests, as it says itself.
pub(super) fn serves(node: &RedisServer) -> Result<bool, ServerError> {
    let info = node.command(&["CLUSTER", "INFO"])?;
    Ok(info.text().unwrap_or_default().contains("cluster_state:ok"))
}

fn follows(node: &RedisServer) -> Result<bool, ServerError> {
    let info = node.command(&["INFO", "replication"])?;
    let info = info.text().unwrap_or_default();
    Ok(info.contains("role:master") || info.contains("master_link_status:up"))
}

/// Whose slots are whose: the first, the last, and the id of the primary.
fn owners(node: &RedisServer) -> Result<Vec<SlotRange>, ServerError> {
    let slots = node.command(&["CLUSTER", "SLOTS"])?;
    let mut ranges = Vec::new();
    for range in slots.list().unwrap_or_default() {
        let range = range.list().unwrap_or_default();
        let primary = range.get(2).and_then(|node| node.list()?.get(2)?.text());
        let number = |place: usize| range.get(place).and_then(super::super::Reply::integer);
        match (number(0), number(1), primary) {
            (Some(first), Some(last), Some(id)) => ranges.push((first, last, id.to_owned())),
            _ => return Err(odd("CLUSTER SLOTS")),
        }
    }
    ranges.sort_unstable();
    Ok(ranges)
}

/// The epochs of the primaries' slots, by the primaries' ids.
///
/// Two that took over at once have the same one until one of them takes another;
/// a replica that has not heard of that gets no votes for its primary's slots.
fn epochs(node: &RedisServer) -> Result<Epochs, ServerError> {
    let nodes = node.command(&["CLUSTER", "NODES"])?;
    let mut epochs = BTreeMap::new();
    for line in nodes.text().unwrap_or_default().lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let (Some(id), Some(flags), Some(epoch)) = (fields.first(), fields.get(2), fields.get(6))
        else {
            return Err(odd("CLUSTER NODES"));
        };
        let has_slots = fields.len() > 8;
        let mut flags = flags.split(',');
        let is_primary = flags.clone().any(|flag| flag == "master");
        if has_slots && is_primary && !flags.any(|flag| flag.contains("fail")) {
            epochs.insert((*id).to_owned(), (*epoch).to_owned());
        }
    }
    Ok(epochs)
}

pub(super) fn odd(command: &str) -> ServerError {
    ServerError::Command {
        command: command.to_owned(),
        source: "the answer is not one that Redis gives".into(),
    }
}
