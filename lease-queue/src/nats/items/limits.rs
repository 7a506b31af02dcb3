//! What fits, and what is said where something does not.

use lease_core::StoreError;

use super::machine::{MAX_BYTES, MAX_ITEMS};
use super::op::Reply;
use crate::item::ClaimRef;
use crate::name::{Lane, QueueName};
use crate::store::Settle;

/// The longest text about what went wrong that is kept, in bytes.
const WORDS_BYTES: usize = 8 * 1024;

/// Nothing more is taken.
pub(super) fn full(queue: &QueueName, items: usize, bytes: u64) -> StoreError {
    StoreError::refusing(format!(
        "the queue {queue} holds {items} items with {bytes} bytes of payloads; on NATS it takes up \
         to {MAX_ITEMS} items and {MAX_BYTES} bytes, the dead ones included: let workers catch \
         up, or remove what is dead"
    ))
}

pub(super) fn on_one(stream: &str) -> StoreError {
    StoreError::refusing(format!(
        "the stream {stream} is on one server, and that of the keys on several: items would \
         survive less than this store says; give it as many replicas (nats stream edit)"
    ))
}

/// The log answers with what the machine made of the operation: anything else is a
/// fault of this program, and what it did is not known.
pub(super) fn another(reply: &Reply) -> StoreError {
    StoreError::unknown_outcome(format!(
        "the queue's log answered something else: {reply:?}"
    ))
}

/// About how much of a message a settle takes, at most.
pub(super) fn size_of(claim: &ClaimRef, settle: &Settle) -> usize {
    let lane = match &claim.lane {
        Lane::Group(key) | Lane::Key(key) => key.as_str().len(),
        Lane::Item(_) => 0,
    };
    let words = match settle {
        Settle::Retry { error, .. } => error.as_ref().map_or(0, String::len),
        Settle::Bury { reason } => reason.len(),
        _ => 0,
    };
    // What JSON escapes may take twice as much, and more for a control character.
    256 + 2 * lane + 2 * words.min(WORDS_BYTES)
}

/// What is said to people, cut where it is very long.
pub(super) fn cut(settle: &Settle) -> Settle {
    let words = |text: &String| match text.len() <= WORDS_BYTES {
        true => text.clone(),
        false => format!("{}…", &text[..text.floor_char_boundary(WORDS_BYTES)]),
    };
    match settle {
        Settle::Retry {
            delay,
            counts,
            error,
        } => Settle::Retry {
            delay: *delay,
            counts: *counts,
            error: error.as_ref().map(words),
        },
        Settle::Bury { reason } => Settle::Bury {
            reason: words(reason),
        },
        other => other.clone(),
    }
}
