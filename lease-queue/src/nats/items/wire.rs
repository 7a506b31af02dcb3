//! Operations as they stand in the log: JSON, and the payloads behind it.

use std::time::Duration;

use bytes::Bytes;
use lease_core::{FenceWhen, Key, Label, Owner, Token, Ttl};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::op::{OneSettle, Op, Over, Seen};
use super::text::as_text;
use crate::item::{ClaimRef, ItemId, NewItem};
use crate::name::Lane;
use crate::store::Settle;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum WireOp {
    Put(Vec<WireItem>),
    Claim {
        #[serde(with = "as_text")]
        owner: Owner,
        ttl_us: u64,
        label: String,
        max: usize,
        over: Vec<WireOver>,
    },
    Settle(Vec<WireSettle>),
    Abandon {
        #[serde(with = "as_text")]
        owner: Owner,
        over: Vec<WireOver>,
    },
    Fence {
        lane: WireLane,
        at_least: u64,
        immediately: bool,
        over: Vec<WireOver>,
    },
    Requeue(#[serde(with = "as_text")] ItemId),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireItem {
    #[serde(with = "as_text")]
    id: ItemId,
    group: Option<String>,
    dedup: Option<String>,
    delay_us: u64,
}

/// Never a key's: those are not in the log.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum WireLane {
    Group(String),
    Item(#[serde(with = "as_text")] ItemId),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireOver {
    lane: WireLane,
    revision: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireSettle {
    claim: WireClaim,
    to: WireTo,
    /// The revision, and what is left.
    seen: Option<(u64, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WireClaim {
    #[serde(with = "as_text")]
    item: ItemId,
    lane: WireLane,
    #[serde(with = "as_text")]
    owner: Owner,
    token: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum WireTo {
    /// For so many microseconds.
    Extend(u64),
    Complete,
    Retry {
        delay_us: u64,
        counts: bool,
        error: Option<String>,
    },
    Bury(String),
}

/// `None` for what is not in the log: a key's lane.
pub(super) fn encode(op: &Op, bodies: &mut Vec<Bytes>) -> Option<Box<RawValue>> {
    let wire = match op {
        Op::Put(items) => WireOp::Put(
            items
                .iter()
                .map(|item| {
                    bodies.push(item.body.clone());
                    WireItem::of(item)
                })
                .collect(),
        ),
        Op::Claim {
            owner,
            ttl,
            label,
            max,
            over,
        } => WireOp::Claim {
            owner: *owner,
            ttl_us: ttl.as_micros(),
            label: label.as_str().to_owned(),
            max: *max,
            over: over_of(over)?,
        },
        Op::Settle(claims) => {
            WireOp::Settle(claims.iter().map(WireSettle::of).collect::<Option<_>>()?)
        }
        Op::Abandon { owner, over } => WireOp::Abandon {
            owner: *owner,
            over: over_of(over)?,
        },
        Op::Fence {
            lane,
            at_least,
            when,
            over,
        } => WireOp::Fence {
            lane: WireLane::of(lane)?,
            at_least: at_least.get(),
            immediately: *when == FenceWhen::Immediately,
            over: over_of(over)?,
        },
        Op::Requeue(item) => WireOp::Requeue(*item),
    };
    to_raw_value(&wire).ok()
}

/// `None` for what is not an operation as [`encode`] writes it.
pub(super) fn decode(json: &RawValue, bodies: &mut dyn Iterator<Item = Bytes>) -> Option<Op> {
    Some(match serde_json::from_str(json.get()).ok()? {
        WireOp::Put(items) => {
            let items = items.into_iter().map(|item| item.read(bodies.next()?));
            Op::Put(items.collect::<Option<_>>()?)
        }
        WireOp::Claim {
            owner,
            ttl_us,
            label,
            max,
            over,
        } => Op::Claim {
            owner,
            ttl: ttl(ttl_us)?,
            label: Label::new(label).ok()?,
            max,
            over: read_over(over)?,
        },
        WireOp::Settle(claims) => {
            let claims = claims.into_iter().map(WireSettle::read);
            Op::Settle(claims.collect::<Option<_>>()?)
        }
        WireOp::Abandon { owner, over } => Op::Abandon {
            owner,
            over: read_over(over)?,
        },
        WireOp::Fence {
            lane,
            at_least,
            immediately,
            over,
        } => Op::Fence {
            lane: lane.read()?,
            at_least: Token::new(at_least).ok()?,
            when: match immediately {
                true => FenceWhen::Immediately,
                false => FenceWhen::AtExpiry,
            },
            over: read_over(over)?,
        },
        WireOp::Requeue(item) => Op::Requeue(item),
    })
}

impl WireItem {
    fn of(item: &NewItem) -> Self {
        Self {
            id: item.id,
            group: text(item.group.as_ref()),
            dedup: text(item.dedup.as_ref()),
            delay_us: micros(item.delay),
        }
    }

    fn read(self, body: Bytes) -> Option<NewItem> {
        Some(NewItem {
            id: self.id,
            body,
            group: key(self.group)?,
            dedup: key(self.dedup)?,
            delay: Duration::from_micros(self.delay_us),
        })
    }
}

impl WireLane {
    pub(super) fn of(lane: &Lane) -> Option<Self> {
        match lane {
            Lane::Group(group) => Some(Self::Group(group.as_str().to_owned())),
            Lane::Item(item) => Some(Self::Item(*item)),
            Lane::Key(_) => None,
        }
    }

    pub(super) fn read(self) -> Option<Lane> {
        Some(match self {
            Self::Group(group) => Lane::Group(Key::new(group).ok()?),
            Self::Item(item) => Lane::Item(item),
        })
    }
}

impl WireClaim {
    pub(super) fn of(claim: &ClaimRef) -> Option<Self> {
        Some(Self {
            item: claim.item,
            lane: WireLane::of(&claim.lane)?,
            owner: claim.owner,
            token: claim.token.get(),
        })
    }

    pub(super) fn read(self) -> Option<ClaimRef> {
        Some(ClaimRef {
            item: self.item,
            lane: self.lane.read()?,
            owner: self.owner,
            token: Token::new(self.token).ok()?,
        })
    }
}

impl WireSettle {
    fn of(one: &OneSettle) -> Option<Self> {
        Some(Self {
            claim: WireClaim::of(&one.claim)?,
            to: match &one.settle {
                Settle::Extend(ttl) => WireTo::Extend(ttl.as_micros()),
                Settle::Complete => WireTo::Complete,
                Settle::Retry {
                    delay,
                    counts,
                    error,
                } => WireTo::Retry {
                    delay_us: micros(*delay),
                    counts: *counts,
                    error: error.clone(),
                },
                Settle::Bury { reason } => WireTo::Bury(reason.clone()),
            },
            seen: one.seen.map(|seen| (seen.revision, seen.left_us)),
        })
    }

    fn read(self) -> Option<OneSettle> {
        let seen = self
            .seen
            .map(|(revision, left_us)| Seen { revision, left_us });
        let settle = match self.to {
            WireTo::Extend(ttl_us) => Settle::Extend(ttl(ttl_us)?),
            WireTo::Complete => Settle::Complete,
            WireTo::Retry {
                delay_us,
                counts,
                error,
            } => Settle::Retry {
                delay: Duration::from_micros(delay_us),
                counts,
                error,
            },
            WireTo::Bury(reason) => Settle::Bury { reason },
        };
        Some(OneSettle {
            claim: self.claim.read()?,
            settle,
            seen,
        })
    }
}

fn over_of(over: &[Over]) -> Option<Vec<WireOver>> {
    let of = |over: &Over| {
        let lane = WireLane::of(&over.lane)?;
        let revision = over.revision;
        Some(WireOver { lane, revision })
    };
    over.iter().map(of).collect()
}

fn read_over(over: Vec<WireOver>) -> Option<Vec<Over>> {
    let read = |over: WireOver| {
        let lane = over.lane.read()?;
        let revision = over.revision;
        Some(Over { lane, revision })
    };
    over.into_iter().map(read).collect()
}

fn ttl(us: u64) -> Option<Ttl> {
    Ttl::new(Duration::from_micros(us)).ok()
}

pub(super) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(super) fn text(key: Option<&Key>) -> Option<String> {
    key.map(|key| key.as_str().to_owned())
}

/// `None` if there is text that is no key.
#[allow(clippy::option_option)]
pub(super) fn key(text: Option<String>) -> Option<Option<Key>> {
    text.map(Key::new).transpose().ok()
}
