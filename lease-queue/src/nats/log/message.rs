//! The form of what goes into a log and into a snapshot: a line of JSON, which people
//! read with `nats stream get`, and the raw bodies behind it.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use lease_core::{InvalidInput, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Machine, errors};

/// The version of this form.
const VERSION: u32 = 1;

/// Random, new for each message: how its sender knows it again, and everybody a copy.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Nonce(u128);

impl Nonce {
    pub(super) fn random() -> Result<Self, InvalidInput> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|_| InvalidInput::NoRandomness)?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }

    pub(super) const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    pub(super) const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Nonce {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Nonce {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let plain = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != 32 || !digits.bytes().all(plain) {
            return Err(serde::de::Error::custom(
                "a nonce has 32 hexadecimal digits",
            ));
        }
        u128::from_str_radix(&digits, 16)
            .map(Self)
            .map_err(serde::de::Error::custom)
    }
}

/// One message of a log, by where it is and by what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// 0 before the first message.
    pub(super) revision: u64,
    pub(super) nonce: Nonce,
}

/// A complete snapshot, as the log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    /// The messages that it covers, from the first one on.
    pub(super) covers: u64,
    pub(super) bytes: u64,
}

/// A message of a log.
#[derive(Clone, Debug)]
pub(super) struct Message<Op> {
    pub(super) nonce: Nonce,
    /// The last one that its sender had seen.
    pub(super) after: Mark,
    pub(super) snapshot: Option<Named>,
    pub(super) ops: Vec<Op>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    leases: u32,
    nonce: Nonce,
    after: (u64, Nonce),
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<Named>,
    /// The lengths of the bodies, in the order in which they follow.
    bodies: Vec<usize>,
    #[serde(borrow)]
    ops: Vec<&'a RawValue>,
}

/// The version alone, of whatever form.
#[derive(Deserialize)]
struct Version {
    leases: u32,
}

/// An operation as it goes out.
#[derive(Clone, Debug)]
pub(super) struct Encoded {
    json: Arc<RawValue>,
    bodies: Vec<Bytes>,
}

impl Encoded {
    pub(super) fn of<M: Machine>(op: &M::Op) -> Result<Self, StoreError> {
        let mut bodies = Vec::new();
        let json = M::encode(op, &mut bodies)?.into();
        Ok(Self { json, bodies })
    }

    /// What it takes of a message, at most.
    pub(super) fn bytes(&self) -> usize {
        // With the comma, and the number of each body's bytes.
        let raw: usize = self.bodies.iter().map(|body| body.len() + 21).sum();
        self.json.get().len() + 1 + raw
    }
}

/// What a message has besides its operations, at most.
pub(super) const MARGIN: usize = 512;

pub(super) fn encode(
    nonce: Nonce,
    after: Mark,
    snapshot: Option<Named>,
    ops: &[Encoded],
) -> Result<Bytes, StoreError> {
    let bodies: Vec<Bytes> = ops
        .iter()
        .flat_map(|op| op.bodies.iter().cloned())
        .collect();
    let head = Wire {
        leases: VERSION,
        nonce,
        after: (after.revision, after.nonce),
        snapshot,
        bodies: bodies.iter().map(Bytes::len).collect(),
        ops: ops.iter().map(|op| &*op.json).collect(),
    };
    joined(&head, &bodies)
}

/// Why a payload is no message of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    Foreign,
    Newer,
}

pub(super) fn decode<M: Machine>(payload: &[u8]) -> Result<Message<M::Op>, Unreadable> {
    let (line, payload) = line(payload).ok_or(Unreadable::Foreign)?;
    let wire = match serde_json::from_slice::<Wire<'_>>(line) {
        Ok(wire) if wire.leases == VERSION => wire,
        _ => {
            return Err(match serde_json::from_slice::<Version>(line) {
                Ok(version) if version.leases > VERSION => Unreadable::Newer,
                _ => Unreadable::Foreign,
            });
        }
    };
    let bodies = split(payload, &wire.bodies).ok_or(Unreadable::Foreign)?;
    let mut bodies = bodies.into_iter();
    let ops = wire.ops.into_iter().map(|op| M::decode(op, &mut bodies));
    let ops: Option<Vec<_>> = ops.collect();
    match ops {
        Some(ops) if bodies.next().is_none() => Ok(Message {
            nonce: wire.nonce,
            after: Mark {
                revision: wire.after.0,
                nonce: wire.after.1,
            },
            snapshot: wire.snapshot,
            ops,
        }),
        _ => Err(Unreadable::Foreign),
    }
}

/// A line of JSON, and the bodies behind it.
pub(super) fn joined(head: &impl Serialize, bodies: &[Bytes]) -> Result<Bytes, StoreError> {
    let mut payload = serde_json::to_vec(head).map_err(errors::unwritable)?;
    payload.push(b'\n');
    for body in bodies {
        payload.extend_from_slice(body);
    }
    Ok(payload.into())
}

/// The first line without its end, and what follows it.
pub(super) fn line(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = payload.iter().position(|byte| *byte == b'\n')?;
    Some((&payload[..end], &payload[end + 1..]))
}

/// Copies of the bodies of these lengths, if they are all there is: one that is kept
/// must not keep its whole message.
pub(super) fn split(payload: &[u8], lengths: &[usize]) -> Option<Vec<Bytes>> {
    let mut rest = payload;
    let bodies = take(&mut rest, lengths);
    bodies.filter(|_| rest.is_empty())
}

/// Copies of the bodies of these lengths, which are the first of it.
pub(super) fn take(rest: &mut &[u8], lengths: &[usize]) -> Option<Vec<Bytes>> {
    let bodies = lengths.iter().map(|length| {
        let (body, behind) = rest.split_at_checked(*length)?;
        *rest = behind;
        Some(Bytes::copy_from_slice(body))
    });
    bodies.collect()
}
