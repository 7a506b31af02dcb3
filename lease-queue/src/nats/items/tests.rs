//! The machine against the reference, against itself, and against what is not its own.

mod random;
mod watched;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lease_core::{Clock, Key, Label, ManualClock, Owner, Ttl};
use serde_json::value::RawValue;

use super::machine::Queue;
use super::op::{Op, Over, Reply};
use crate::item::{ItemId, NewItem};
use crate::nats::log::{At, Machine};

/// When the clocks start, in microseconds since the Unix epoch.
const EPOCH_US: u64 = 1_700_000_000_000_000;

fn queue(clock: &Arc<ManualClock>) -> Queue {
    Queue::with_clock(Arc::clone(clock) as Arc<dyn Clock>, || 0)
}

fn now(clock: &ManualClock, revision: u64) -> At {
    At {
        revision,
        us: EPOCH_US + clock.now().as_nanos() / 1000,
    }
}

fn owner(n: u8) -> Owner {
    Owner::from_bytes([n; 16])
}

fn item(n: u8) -> NewItem {
    NewItem {
        id: ItemId::from_bytes([n; 16]),
        body: Bytes::from(vec![n; usize::from(n)]),
        group: None,
        dedup: None,
        delay: Duration::ZERO,
    }
}

fn key(n: u8) -> Key {
    Key::new(format!("k{n}")).unwrap()
}

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

fn claim(owner: Owner, ttl: Ttl, over: Vec<Over>) -> Op {
    Op::Claim {
        owner,
        ttl,
        label: Label::EMPTY,
        max: 1,
        over,
    }
}

/// What the log does: the operation as everybody reads it.
fn through_the_log(op: &Op) -> Op {
    let mut bodies = Vec::new();
    let value = Queue::encode(op, &mut bodies).unwrap();
    let text = serde_json::to_vec(&value).unwrap();
    let value: Box<RawValue> = serde_json::from_slice(&text).unwrap();
    let mut bodies = bodies.into_iter();
    let read = Queue::decode(&value, &mut bodies).unwrap();
    assert_eq!((&read, bodies.next()), (op, None));
    read
}

fn bytes(queue: &Queue) -> Vec<(String, Vec<Bytes>)> {
    let pieces = queue.save().unwrap().into_iter();
    let text = |value| serde_json::to_string(&value).unwrap();
    pieces
        .map(|(value, bodies)| (text(value), bodies))
        .collect()
}

#[track_caller]
fn claimed(reply: Reply) -> crate::item::Claimed {
    match reply {
        Reply::Claimed(crate::store::Answer::Claimed { mut items, .. }, _) => items.pop().unwrap(),
        other => panic!("{other:?}"),
    }
}
