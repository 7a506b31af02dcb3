//! Items, and claims on them, as a store sees them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use lease_core::{Holder, InvalidInput, Key, Owner, Token};

use crate::name::{Lane, QueueInput};

/// An item's identity: 128 random bits, drawn by whoever puts the item, so that a
/// put whose outcome is unknown may be repeated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId([u8; 16]);

impl ItemId {
    /// The identity of every key's token item: it alone is in its key's lane. No
    /// item that is put has it.
    pub const TOKEN: Self = Self([0; 16]);

    /// A new identity from the operating system's randomness.
    ///
    /// # Errors
    /// [`InvalidInput::NoRandomness`].
    pub fn random() -> Result<Self, InvalidInput> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|_| InvalidInput::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// An identity from its bytes, as a store keeps them.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, as a store keeps them.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The same text as an owner's.
        fmt::Display::fmt(&Owner::from_bytes(self.0), f)
    }
}

impl fmt::Debug for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ItemId {
    type Err = QueueInput;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The same text as an owner's.
        let bytes: Owner = text.parse().map_err(|_| QueueInput::Item)?;
        Ok(Self(*bytes.as_bytes()))
    }
}

/// An item to put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewItem {
    /// Its identity.
    pub id: ItemId,
    /// Its payload: up to [`MAX_BODY_BYTES`](crate::MAX_BODY_BYTES).
    pub body: Bytes,
    /// The group that it belongs to, if it does.
    pub group: Option<Key>,
    /// No second item of the same queue with this key while one is in the queue,
    /// dead or not, or was completed within the store's
    /// [`dedup_window`](crate::Capabilities::dedup_window).
    pub dedup: Option<Key>,
    /// It cannot be claimed before this has passed at the store: up to
    /// [`MAX_DELAY`](crate::MAX_DELAY).
    pub delay: Duration,
}

/// One claim, for [`settle`](crate::QueueStore::settle): proves that this very
/// grant is meant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    /// The item; [`ItemId::TOKEN`] in a key's lane.
    pub item: ItemId,
    /// What the claim's owner owns: the item's group, or the item.
    pub lane: Lane,
    /// The claim's owner.
    pub owner: Owner,
    /// The claim's token.
    pub token: Token,
}

/// An item that was claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The claim.
    pub claim: ClaimRef,
    /// The payload.
    pub body: Bytes,
    /// Which attempt this is, from 1. Never a fence: it may count down.
    pub attempt: u32,
    /// How long ago the item was put, by the store's clock.
    pub age: Duration,
}

/// Where an item stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// It may be claimed, in its group's order.
    Ready,
    /// It may be claimed after this.
    Delayed(Duration),
    /// It is claimed.
    Claimed(Holder),
    /// It was buried, with the reason.
    Dead(String),
}

/// An item as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemState {
    /// The item.
    pub id: ItemId,
    /// Its group.
    pub group: Option<Key>,
    /// Its deduplication key.
    pub dedup: Option<Key>,
    /// How often it was attempted.
    pub attempts: u32,
    /// How long ago it was put, by the store's clock.
    pub age: Duration,
    /// How many bytes its payload has.
    pub bytes: usize,
    /// Where it stands.
    pub phase: Phase,
    /// What the last failed attempt said.
    pub last_error: Option<String>,
}
