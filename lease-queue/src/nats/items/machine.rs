//! The state machine: one queue's items.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use lease_core::{Clock, Owner, RefusedReason, StoreError, SystemClock, Ttl};
use serde_json::value::RawValue;

use super::clock::{ServersClock, wall};
use super::op::{OneSettle, Op, Over, Reply};
use super::sight::Sights;
use super::{saved, wire};
use crate::item::NewItem;
use crate::name::Lane;
use crate::nats::log::{At, Machine, Piece};
use crate::rules::QueueRules;
use crate::store::{Answer, ClaimRequest, Settle, Settled, What};
use crate::table::Table;
use crate::table::lane::{Now, Term, UNTIL_TOLD};

/// The most items, dead or not, that a queue holds. Each client holds all of them.
pub(crate) const MAX_ITEMS: usize = 100_000;
/// The most bytes of payloads.
pub(crate) const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// Numbers hints, so that no two states have the same one.
static HINTS: AtomicU64 = AtomicU64::new(0);

/// One queue's items, and what this client has seen of their grants.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(super) table: Table,
    pub(super) sights: Sights,
    pub(super) servers: ServersClock,
    hint: u64,
}

impl Default for Queue {
    fn default() -> Self {
        Self::with_clock(Arc::new(SystemClock::new()), wall)
    }
}

impl Queue {
    pub(super) fn with_clock(clock: Arc<dyn Clock>, wall: fn() -> u64) -> Self {
        Self {
            table: Table::new(QueueRules::ALL),
            sights: Sights::new(clock),
            servers: ServersClock::new(wall),
            hint: HINTS.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Another number whenever something may have become ready.
    pub(crate) fn hint(&self) -> u64 {
        self.hint
    }

    /// Everything that this does to the table follows from the log alone.
    pub(super) fn step(&mut self, at: At, op: Op) -> Reply {
        self.servers.heard(at.us, self.sights.now());
        let now = Now {
            us: at.us,
            epoch_us: at.us,
        };
        let reply = match op {
            Op::Put(items) => self.put(&items, now),
            Op::Claim {
                owner,
                ttl,
                label,
                max,
                over,
            } => {
                self.end(&over, now);
                let request = ClaimRequest {
                    owner,
                    ttl,
                    label,
                    what: What::Next { max },
                };
                let answer = self.table.claim(&request, now);
                self.began(&answer, ttl, at.revision);
                Reply::Claimed(answer, at.revision)
            }
            Op::Settle(claims) => {
                let settle = |one| self.settle(one, at.revision, now);
                let settled = claims.into_iter().map(settle).collect();
                Reply::Settled(settled, at.revision)
            }
            Op::Abandon { owner, over } => {
                self.end(&over, now);
                let lanes = self.table.lanes_of(owner);
                self.table.abandon(None, owner, now);
                lanes.iter().for_each(|lane| self.see(lane));
                Reply::Abandoned
            }
            Op::Fence {
                lane,
                at_least,
                when,
                over,
            } => {
                self.end(&over, now);
                let mark = self.table.fence(&lane, at_least, when, now);
                self.see(&lane);
                Reply::Fenced(mark)
            }
            Op::Requeue(item) => Reply::Requeued(self.table.requeue(item, now)),
        };
        if self.table.hints().queue {
            self.hint = HINTS.fetch_add(1, Ordering::Relaxed);
        }
        reply
    }

    fn put(&mut self, items: &[NewItem], now: Now) -> Reply {
        let new = items.iter().filter(|item| !self.table.knows(item.id, now));
        let (count, bytes) = new.fold((0, 0), |(count, bytes), item| {
            (count + 1, bytes + item.body.len() as u64)
        });
        let held = (self.table.items.len(), self.table.bytes);
        if count > 0 && (held.0 + count > MAX_ITEMS || held.1 + bytes > MAX_BYTES) {
            return Reply::Full {
                items: held.0,
                bytes: held.1,
            };
        }
        let added = items.iter().map(|item| self.table.put(item, now));
        Reply::Added(added.collect())
    }

    /// Ends what was seen to be over.
    fn end(&mut self, over: &[Over], now: Now) {
        for Over { lane, revision } in over {
            self.table.over(lane, *revision, now);
            self.see(lane);
        }
    }

    fn began(&mut self, answer: &Answer, ttl: Ttl, revision: u64) {
        let Answer::Claimed { items, .. } = answer else {
            return;
        };
        let term = Term {
            revision,
            lasts_us: ttl.as_micros(),
        };
        for item in items {
            self.table.watched(&item.claim.lane, term);
            self.see(&item.claim.lane);
        }
    }

    fn settle(&mut self, one: OneSettle, revision: u64, now: Now) -> Settled {
        let OneSettle {
            claim,
            settle,
            seen,
        } = one;
        let lane = &claim.lane;
        if let Some(seen) = seen
            && seen.left_us == 0
        {
            self.table.over(lane, seen.revision, now);
        }
        let last = self.table.standing(lane).map(|(_, term)| term.revision);
        let settled = self.table.settle(&claim, &settle, now);
        if let (Settle::Extend(ttl), Settled::Done) = (&settle, settled) {
            let seen = seen.filter(|seen| Some(seen.revision) == last);
            let left_us = seen.map(|seen| seen.left_us);
            self.table.extended(lane, *ttl, revision, left_us);
        }
        self.see(lane);
        settled
    }

    /// Notes how the lane's grant stands by now.
    fn see(&self, lane: &Lane) {
        let term = self.table.standing(lane).map(|(_, term)| term);
        self.sights.see(lane, term);
    }

    /// What a claim of this owner would be answered as far as is known, if it would
    /// get nothing.
    pub(crate) fn nothing_for(&self, owner: Owner) -> Option<Answer> {
        if let Some(reason) = self.tombstone(owner) {
            return Some(Answer::Refused(reason));
        }
        let next = self.table.ready.first().map(|(at_us, ..)| *at_us);
        let waits = next.is_none_or(|at_us| at_us == UNTIL_TOLD);
        let next = self.sights.next();
        let none_over = next.is_none_or(|left| !left.is_zero());
        (waits && none_over).then_some(Answer::Nothing { next })
    }

    /// Why this owner is given nothing any more.
    pub(crate) fn tombstone(&self, owner: Owner) -> Option<RefusedReason> {
        let now_us = self.servers.now_us(self.sights.now());
        self.table.tombstones.get(&owner, now_us).cloned()
    }
}

impl Machine for Queue {
    type Op = Op;
    type Answer = Reply;

    fn encode(op: &Op, bodies: &mut Vec<Bytes>) -> Result<Box<RawValue>, StoreError> {
        wire::encode(op, bodies).ok_or_else(|| unwritten("the operation"))
    }

    fn decode(json: &RawValue, bodies: &mut dyn Iterator<Item = Bytes>) -> Option<Op> {
        wire::decode(json, bodies)
    }

    fn apply(&mut self, at: At, op: Op) -> Reply {
        self.step(at, op)
    }

    fn save(&self) -> Result<Vec<Piece>, StoreError> {
        saved::save(&self.table).ok_or_else(|| unwritten("the queue's state"))
    }

    fn load(pieces: Vec<Piece>) -> Option<Self> {
        let mut queue = Self::default();
        saved::load(pieces, &mut queue)?;
        Some(queue)
    }
}

/// Never met: all that is written has a form.
fn unwritten(what: &str) -> StoreError {
    StoreError::refusing(format!(
        "{what} cannot be written; this is a fault of leases"
    ))
}
