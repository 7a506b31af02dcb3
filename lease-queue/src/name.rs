//! Names of queues, and of what has one owner at a time within one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{InvalidInput, Key};

use crate::item::ItemId;
use crate::store::{MAX_BATCH, MAX_DELAY};

/// The longest name of a queue, in bytes.
pub const QUEUE_NAME_BYTES: usize = 128;

/// The longest name of a group, in bytes: a group's lease has a key of its own.
pub const GROUP_BYTES: usize = 480;

/// Input that a queue does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueInput {
    /// The queue's name breaks the rules of a key, or is too long.
    #[error("the name of a queue has 1 to {QUEUE_NAME_BYTES} bytes of printable text")]
    Name(#[source] Option<InvalidInput>),
    /// The group's name breaks the rules of a key, or is too long.
    #[error("the name of a group has 1 to {GROUP_BYTES} bytes of printable text")]
    Group(#[source] Option<InvalidInput>),
    /// The text is not an item.
    #[error("not an item: expected 32 hexadecimal digits, as the queue's list prints them")]
    Item,
    /// The number of items is not one that a request takes.
    #[error("{items} items at a time; a request is for 1 to {MAX_BATCH}")]
    Batch {
        /// How many there were.
        items: usize,
    },
    /// An item's identity is no item's own.
    #[error("an item's identity is random, and each item's own: draw one for each")]
    Identity,
    /// The payload is too large.
    #[error(
        "the payload has {bytes} bytes; this store takes up to {max}: keep it elsewhere and put \
         its address"
    )]
    Body {
        /// How many it has.
        bytes: usize,
        /// How many the store takes.
        max: usize,
    },
    /// The payloads of one put are too large together.
    #[error(
        "the payloads have {bytes} bytes together; this store takes up to {max} in one put: put \
         fewer at a time"
    )]
    Bodies {
        /// How many they have.
        bytes: usize,
        /// How many the store takes at once.
        max: usize,
    },
    /// The delay is too long.
    #[error("a delay of {delay:?} is too long; the limit is {MAX_DELAY:?}")]
    Delay {
        /// The delay that was asked for.
        delay: Duration,
    },
    /// The store keeps leases of keys alone.
    #[error("this store keeps leases of keys and no items; put items on another store of queues")]
    NoItems,
    /// The store has no groups.
    #[error("this store has no groups")]
    NoGroups,
    /// The store has no delays.
    #[error("this store cannot delay an item")]
    NoDelay,
    /// No attempt is allowed.
    #[error("an item needs at least one attempt")]
    NoAttempts,
    /// The put was found not valid before.
    #[error("this put was not valid, as its first `send` said: begin another")]
    Spent,
    /// A token item stays for ever.
    #[error("a key's token item is never completed nor buried: release it")]
    TokenItem,
}

/// The name of a queue: 1 to 128 bytes of UTF-8 without control characters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueName(Arc<str>);

impl QueueName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`QueueInput::Name`].
    pub fn new(name: impl AsRef<str>) -> Result<Self, QueueInput> {
        let name = name.as_ref();
        if name.len() > QUEUE_NAME_BYTES {
            return Err(QueueInput::Name(None));
        }
        Key::new(name).map_err(|error| QueueInput::Name(Some(error)))?;
        Ok(Self(name.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What has one owner at a time within a queue.
///
/// Different lanes never share state, whatever their names hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// A group: its items, first in, first out.
    Group(Key),
    /// An item without a group.
    Item(ItemId),
    /// A key with its permanent token item, which is never completed.
    Key(Key),
}

/// In words, as its leases are named to people: `group reports`, say. Different lanes
/// have different words.
impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => write!(f, "group {group}"),
            Self::Item(item) => write!(f, "item {item}"),
            Self::Key(key) => write!(f, "key {key}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_named_as_people_know_it_and_no_other_is_named_so() {
        let key = |text: &str| Key::new(text).unwrap();
        let item = ItemId::from_bytes([0xab; 16]);
        let hex = "ab".repeat(16);
        let lanes = [
            (Lane::Group(key("reports")), "group reports".to_owned()),
            (Lane::Item(item), format!("item {hex}")),
            (Lane::Group(key(&hex)), format!("group {hex}")),
            (Lane::Key(key("reports")), "key reports".to_owned()),
            (
                Lane::Key(key("group reports")),
                "key group reports".to_owned(),
            ),
            (
                Lane::Group(key("key reports")),
                "group key reports".to_owned(),
            ),
        ];
        for (lane, words) in &lanes {
            assert_eq!(lane.to_string(), *words);
        }
        // The longest group's lease has a key, too.
        let group = Lane::Group(key(&"g".repeat(GROUP_BYTES)));
        assert!(Key::new(group.to_string()).is_ok());
    }
}
