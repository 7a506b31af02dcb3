//! Who has which slot.

use std::sync::Arc;

use redis::Value;

use super::slot::SLOTS;
use crate::address::Address;

impl Address {
    /// Of a redirection: `host:port`. Without a host it is the one of the node
    /// that answers.
    pub(crate) fn parse(text: &str, answers: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(Self {
            host: match host {
                "" => Arc::clone(&answers.host),
                // It knows the node, and not where that is.
                "?" => return None,
                host => Arc::from(host),
            },
            port: port.parse().ok()?,
        })
    }
}

/// A picture of the cluster, as one of its nodes sees it.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    /// By slot: a place in `primaries`.
    owners: Vec<u16>,
    primaries: Vec<Address>,
    replicas: Vec<Address>,
    /// It rises with each failover and each slot that moves.
    pub(crate) epoch: u64,
    /// Whether the node takes requests.
    pub(crate) serves: bool,
}

const NOBODY: u16 = u16::MAX;

impl Default for Map {
    fn default() -> Self {
        Self {
            owners: vec![NOBODY; usize::from(SLOTS)],
            primaries: Vec::new(),
            replicas: Vec::new(),
            epoch: 0,
            serves: false,
        }
    }
}

impl Map {
    /// Reads what `answers` says to CLUSTER SLOTS and CLUSTER INFO. Without the
    /// right to the latter, its epoch is none.
    pub(crate) fn read(slots: &Value, info: Option<&str>, answers: &Address) -> Option<Self> {
        let Value::Array(ranges) = slots else {
            return None;
        };
        let mut map = Self::default();
        for range in ranges {
            let Value::Array(parts) = range else {
                return None;
            };
            let [first, last, nodes @ ..] = parts.as_slice() else {
                return None;
            };
            let (first, last) = (slot(first)?, slot(last)?);
            let nodes: Option<Vec<_>> = nodes.iter().map(|node| address(node, answers)).collect();
            let mut nodes = nodes?.into_iter();
            // A node that it cannot name serves nobody.
            if let Some(primary) = nodes.next()? {
                let owner = map.place(primary);
                let slots = map.owners.get_mut(usize::from(first)..=usize::from(last));
                slots.filter(|slots| !slots.is_empty())?.fill(owner);
            }
            // It is named with each range of its primary.
            for replica in nodes.flatten() {
                if !map.replicas.contains(&replica) {
                    map.replicas.push(replica);
                }
            }
        }
        let field = |name: &str| {
            let lines = info.unwrap_or_default().lines();
            let mut fields = lines.filter_map(|line| line.trim().split_once(':'));
            fields.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        map.epoch = field("cluster_current_epoch")
            .and_then(|epoch| epoch.parse().ok())
            .unwrap_or_default();
        map.serves = field("cluster_state").is_none_or(|state| state == "ok");
        Some(map)
    }

    fn place(&mut self, primary: Address) -> u16 {
        let known = self.primaries.iter().position(|one| *one == primary);
        let place = known.unwrap_or_else(|| {
            self.primaries.push(primary);
            self.primaries.len() - 1
        });
        u16::try_from(place).unwrap_or(NOBODY)
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<&Address> {
        let place = self.owners.get(usize::from(slot))?;
        self.primaries.get(usize::from(*place))
    }

    /// The same, but for one slot.
    pub(crate) fn with(&self, slot: u16, owner: Address) -> Self {
        let mut map = self.clone();
        let place = map.place(owner);
        if let Some(slot) = map.owners.get_mut(usize::from(slot)) {
            *slot = place;
        }
        map
    }

    /// The primaries that have slots.
    pub(crate) fn primaries(&self) -> impl Iterator<Item = &Address> {
        let used = |place: usize| self.owners.iter().any(|owner| usize::from(*owner) == place);
        let all = self.primaries.iter().enumerate();
        all.filter(move |(place, _)| used(*place))
            .map(|(_, primary)| primary)
    }

    pub(crate) fn replicas(&self) -> &[Address] {
        &self.replicas
    }

    pub(crate) fn has(&self, node: &Address) -> bool {
        self.primaries.contains(node) || self.replicas.contains(node)
    }

    /// The slots of a primary.
    pub(crate) fn slots_of<'a>(&'a self, primary: &'a Address) -> impl Iterator<Item = u16> + 'a {
        (0..SLOTS).filter(move |slot| self.owner(*slot) == Some(primary))
    }

    /// How many slots have none.
    pub(crate) fn uncovered(&self) -> usize {
        usize::from(SLOTS) - self.covered().count()
    }

    /// Slots with a primary.
    pub(crate) fn covered(&self) -> impl Iterator<Item = u16> {
        (0..SLOTS).filter(|slot| self.owner(*slot).is_some())
    }

    /// Whether everything is where it was.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (0..SLOTS).all(|slot| self.owner(slot) == other.owner(slot))
    }
}

fn slot(value: &Value) -> Option<u16> {
    match value {
        Value::Int(slot) => u16::try_from(*slot).ok().filter(|slot| *slot < SLOTS),
        _ => None,
    }
}

/// `None` where it is no address; `Some(None)` for a node that the one that
/// answers does not know how to reach.
#[expect(clippy::option_option)]
fn address(node: &Value, answers: &Address) -> Option<Option<Address>> {
    let Value::Array(parts) = node else {
        return None;
    };
    let [host, Value::Int(port), ..] = parts.as_slice() else {
        return None;
    };
    let port = u16::try_from(*port).ok()?;
    let host = match host {
        Value::Nil => "",
        Value::BulkString(host) => std::str::from_utf8(host).ok()?,
        Value::SimpleString(host) => host,
        _ => return None,
    };
    Some(match host {
        "?" => None,
        "" => Some(Address {
            host: Arc::clone(&answers.host),
            port,
        }),
        host => Some(Address {
            host: Arc::from(host),
            port,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Address {
        Address {
            host: Arc::from(host),
            port,
        }
    }

    fn node(host: Value, port: i64) -> Value {
        Value::Array(vec![host, Value::Int(port), bulk("id")])
    }

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        let mut parts = vec![Value::Int(first), Value::Int(last)];
        parts.extend(nodes);
        Value::Array(parts)
    }

    #[test]
    fn every_way_to_name_a_node_is_read() {
        let slots = Value::Array(vec![
            range(0, 0, vec![node(bulk("a"), 1), node(bulk("b"), 2)]),
            range(1, 9, vec![node(Value::Nil, 3)]),
            range(10, 19, vec![node(bulk(""), 4)]),
            range(20, 29, vec![node(bulk("?"), 5), node(bulk("c"), 6)]),
            range(30, 39, vec![node(bulk("::1"), 7), node(bulk("b"), 2)]),
            range(40, 16_383, vec![node(bulk("::1"), 7)]),
        ]);
        let info = "cluster_state:fail\r\ncluster_current_epoch:12\r\n";
        let map = Map::read(&slots, Some(info), &at("me", 9)).unwrap();
        assert_eq!((map.epoch, map.serves), (12, false));
        assert_eq!(map.owner(0), Some(&at("a", 1)));
        assert_eq!(map.owner(9), Some(&at("me", 3)));
        assert_eq!(map.owner(10), Some(&at("me", 4)));
        assert_eq!(map.owner(20), None);
        assert_eq!(map.owner(16_383).unwrap().to_string(), "[::1]:7");
        assert_eq!(map.owner(16_384), None);
        assert_eq!(map.covered().count(), usize::from(SLOTS) - 10);
        assert_eq!(map.replicas(), [at("b", 2), at("c", 6)]);

        let moved = map.with(0, at("b", 2));
        assert_eq!(moved.owner(0), Some(&at("b", 2)));
        assert_eq!(moved.owner(1), map.owner(1));
        assert!(!moved.is_like(&map) && moved.is_like(&moved.clone()));
        // It has no slot any more.
        assert!(!moved.primaries().any(|one| *one == at("a", 1)));
        assert!(Map::read(&slots, None, &at("me", 9)).unwrap().serves);
    }

    #[test]
    fn nonsense_is_no_map() {
        for odd in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(0, 16_384, vec![node(bulk("a"), 1)])]),
            Value::Array(vec![range(5, 4, vec![node(bulk("a"), 1)])]),
            Value::Array(vec![range(-1, 4, vec![node(bulk("a"), 1)])]),
            Value::Array(vec![range(0, 4, vec![node(bulk("a"), 70_000)])]),
            Value::Array(vec![range(0, 4, vec![Value::Int(1)])]),
            Value::Array(vec![range(0, 4, vec![])]),
        ] {
            assert!(Map::read(&odd, None, &at("me", 9)).is_none(), "{odd:?}");
        }
    }

    #[test]
    fn a_redirection_names_a_node() {
        let me = at("me", 9);
        assert_eq!(Address::parse("a:1", &me), Some(at("a", 1)));
        assert_eq!(Address::parse("::1:7", &me), Some(at("::1", 7)));
        assert_eq!(Address::parse("[::1]:7", &me), Some(at("::1", 7)));
        assert_eq!(Address::parse(":7", &me), Some(at("me", 7)));
        for odd in ["", "a", "a:", "a:x", "a:70000", "?:7"] {
            assert_eq!(Address::parse(odd, &me), None, "{odd}");
        }
    }
}
