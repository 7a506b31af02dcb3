//! Queue ownership: who holds an item owns its work.
//!
//! [`QueueStore`] is what a store implements. Every one of its writes to a claimed
//! item is one conditional step at the store, on *this item, this owner, this token,
//! not expired*: a late worker is told [`Settled::Lost`], and whoever holds the item
//! by then keeps it, untouched.
#![forbid(unsafe_code)]

mod check;
mod item;
mod keyed;
mod memory;
mod name;
// Public only where tests may take a rule out.
#[cfg_attr(not(feature = "broken-rules"), allow(unreachable_pub))]
mod rules;
mod store;

pub use check::{check_claim, check_put, check_settle};
pub use item::{ClaimRef, Claimed, ItemId, ItemState, NewItem, Phase};
pub use keyed::KeyedLeases;
pub use memory::MemoryQueues;
pub use name::{GROUP_BYTES, Lane, QUEUE_NAME_BYTES, QueueInput, QueueName};
#[cfg(feature = "broken-rules")]
pub use rules::QueueRules;
pub use store::{
    Added, Answer, Capabilities, ClaimRequest, Depth, MAX_BATCH, MAX_BODY_BYTES, MAX_DELAY,
    QueueStore, Settle, Settled, What,
};
