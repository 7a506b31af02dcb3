//! A machine that keeps what was applied.

use bytes::Bytes;
use lease_core::StoreError;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use crate::nats::log::{At, Machine, Piece};

/// Everything, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Toy {
    pub(super) applied: Vec<u64>,
    pub(super) bytes: usize,
    pub(super) last: Option<At>,
}

/// An operation that is known by its number.
#[derive(Clone, Debug)]
pub(super) struct Add {
    pub(super) number: u64,
    pub(super) body: Bytes,
}

pub(super) fn add(number: u64) -> Add {
    Add {
        number,
        body: Bytes::from(format!("body\n{number}")),
    }
}

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).unwrap()
}

impl Machine for Toy {
    type Op = Add;
    /// How many were applied before.
    type Answer = usize;

    fn encode(op: &Add, bodies: &mut Vec<Bytes>) -> Result<Box<RawValue>, StoreError> {
        bodies.push(op.body.clone());
        Ok(raw(&json!({ "add": op.number })))
    }

    fn decode(json: &RawValue, bodies: &mut dyn Iterator<Item = Bytes>) -> Option<Add> {
        let value: Value = serde_json::from_str(json.get()).ok()?;
        Some(Add {
            number: value.get("add")?.as_u64()?,
            body: bodies.next()?,
        })
    }

    fn apply(&mut self, at: At, op: Add) -> usize {
        assert!(self.last.is_none_or(|last| last.us <= at.us));
        self.last = Some(at);
        self.bytes += op.body.len();
        self.applied.push(op.number);
        self.applied.len() - 1
    }

    fn save(&self) -> Result<Vec<Piece>, StoreError> {
        let last = self.last.map(|last| (last.revision, last.us));
        let mut pieces = vec![(
            raw(&json!({ "bytes": self.bytes, "last": last })),
            Vec::new(),
        )];
        for some in self.applied.chunks(1000) {
            let bytes: Vec<u8> = some.iter().flat_map(|n| n.to_be_bytes()).collect();
            pieces.push((raw(&json!({})), vec![bytes.into()]));
        }
        Ok(pieces)
    }

    fn load(pieces: Vec<Piece>) -> Option<Self> {
        let mut pieces = pieces.into_iter();
        let (head, _) = pieces.next()?;
        let head: Value = serde_json::from_str(head.get()).ok()?;
        let last: Option<(u64, u64)> = serde_json::from_value(head.get("last")?.clone()).ok()?;
        let mut toy = Self {
            applied: Vec::new(),
            bytes: usize::try_from(head.get("bytes")?.as_u64()?).ok()?,
            last: last.map(|(revision, us)| At { revision, us }),
        };
        for (_, bodies) in pieces {
            for number in bodies.first()?.chunks(8) {
                toy.applied
                    .push(u64::from_be_bytes(number.try_into().ok()?));
            }
        }
        Some(toy)
    }
}
