//! One client's copy of the state: the machine, and what keeps the log's promises around
//! it. All of it follows from the log alone, so that it is the same for everybody.
//!
//! * **A message has an effect once.** Its nonce is remembered while the last
//!   [`WINDOW`] messages are, and it must be based on one of them: it names the last
//!   message that its sender had seen. A copy that comes later than the memory reaches
//!   is based on a message that is forgotten as well, and has no effect.
//! * **A message has no effect in another history.** Should the end of the log be lost
//!   and written anew, what its sender had seen is not there any more.
//! * **Nothing is dropped that no snapshot covers.** The server keeps the last [`KEPT`]
//!   messages of a log. Operations more than [`LOG_MAX`] behind the last snapshot have no
//!   effect until there is a newer one.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use lease_core::StoreError;
use serde::{Deserialize, Serialize};

use super::message::{Mark, Message, Named, Nonce};
use super::{At, Machine, Piece, errors};

/// Messages that are remembered.
pub(super) const WINDOW: usize = 2048;
/// Messages behind a snapshot that may have effects.
pub(super) const LOG_MAX: u64 = 4096;
/// Messages of a log that the server keeps.
pub(super) const KEPT: u64 = 4 * LOG_MAX;
/// Behind a snapshot, from which on nobody sends anything but the name of a newer one:
/// the rest is for what is under way already.
pub(super) const STOP: u64 = KEPT / 2;

/// Messages after which a snapshot is due, if they are as large as the last one was.
const DUE: u64 = 1000;
/// Messages after which it is due in any case.
const OVERDUE: u64 = 3000;
/// Messages after which somebody else is to write it.
const PATIENCE: u64 = 500;

#[derive(Debug)]
pub(super) struct Replica<M> {
    pub(super) machine: M,
    /// What was applied last.
    pub(super) last: Mark,
    /// When that was stored, as its server says. Should the end of the log be lost, and
    /// the same message be stored there again, this is another time.
    pub(super) stamp: u64,
    /// The time of the machine: it is at least the stamp, and never goes back.
    us: u64,
    /// Messages from the beginning of the log on.
    pub(super) count: u64,
    /// The last snapshot that the log names.
    named: Named,
    /// Of the messages since then.
    bytes: u64,
    /// At which count somebody was last told to write a snapshot.
    appointed: Option<u64>,
    /// The last ones, the latest last.
    window: VecDeque<Mark>,
    known: HashMap<Nonce, u64>,
}

/// What a message came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict<A> {
    /// With an answer for each operation.
    Applied(Vec<A>),
    /// A copy of one that came before: no effect.
    Again,
    /// What it is based on is forgotten, or was never there: no effect.
    Late,
    /// Too far behind the last snapshot: no effect.
    Full,
}

#[derive(Debug)]
pub(super) struct Outcome<A> {
    pub(super) verdict: Verdict<A>,
    /// Whether its sender is to write a snapshot as of this message.
    pub(super) appointed: bool,
}

impl<M: Machine> Default for Replica<M> {
    fn default() -> Self {
        Self {
            machine: M::default(),
            last: Mark::default(),
            stamp: 0,
            us: 0,
            count: 0,
            named: Named {
                covers: 0,
                bytes: 0,
            },
            bytes: 0,
            appointed: None,
            window: VecDeque::new(),
            known: HashMap::new(),
        }
    }
}

impl<M: Machine> Replica<M> {
    /// Messages behind the last snapshot.
    pub(super) fn behind(&self) -> u64 {
        self.count.saturating_sub(self.named.covers)
    }

    /// Which message stands at this revision, as far as it is remembered.
    pub(super) fn at(&self, revision: u64) -> Option<Nonce> {
        let place = self.window.binary_search_by_key(&revision, |m| m.revision);
        place.ok().map(|place| self.window[place].nonce)
    }

    /// Takes the next message of the log, of so many bytes and stored at this time.
    pub(super) fn apply(
        &mut self,
        revision: u64,
        us: u64,
        bytes: usize,
        message: Message<M::Op>,
    ) -> Outcome<M::Answer> {
        let again = self.known.contains_key(&message.nonce);
        let based = self.is_base(message.after);
        self.note(Mark {
            revision,
            nonce: message.nonce,
        });
        // What passed since the message before: a stamp that is far ahead, once, must not
        // make time stand still until the others have come there.
        self.us = self.us.saturating_add(us.saturating_sub(self.stamp));
        self.stamp = us;
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if again || !based {
            let verdict = match again {
                true => Verdict::Again,
                false => Verdict::Late,
            };
            return Outcome {
                verdict,
                appointed: false,
            };
        }
        if let Some(named) = message.snapshot
            && (self.named.covers + 1..=self.count).contains(&named.covers)
        {
            self.named = named;
            self.bytes = 0;
            self.appointed = None;
        }
        let verdict = if !message.ops.is_empty() && self.behind() > LOG_MAX {
            Verdict::Full
        } else {
            let at = At {
                revision,
                us: self.us,
            };
            let ops = message.ops.into_iter();
            Verdict::Applied(ops.map(|op| self.machine.apply(at, op)).collect())
        };
        Outcome {
            verdict,
            appointed: self.appoints(),
        }
    }

    fn is_base(&self, mark: Mark) -> bool {
        match mark.revision {
            0 => mark.nonce == Nonce::default() && self.count < WINDOW as u64,
            revision => self.at(revision) == Some(mark.nonce),
        }
    }

    fn note(&mut self, mark: Mark) {
        if self.window.len() >= WINDOW
            && let Some(oldest) = self.window.pop_front()
            && self.known.get(&oldest.nonce) == Some(&oldest.revision)
        {
            self.known.remove(&oldest.nonce);
        }
        // Of copies the first counts: it is forgotten first, and those that follow are
        // based on what is forgotten before that.
        self.known.entry(mark.nonce).or_insert(mark.revision);
        self.window.push_back(mark);
        self.last = mark;
    }

    fn appoints(&mut self) -> bool {
        let due = match self.behind() {
            0..DUE => false,
            DUE..OVERDUE => self.bytes >= self.named.bytes,
            _ => true,
        };
        let waited = |at| self.count.saturating_sub(at) >= PATIENCE;
        let appoints = due && self.appointed.is_none_or(waited);
        if appoints {
            self.appointed = Some(self.count);
        }
        appoints
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    count: u64,
    stamp: u64,
    us: u64,
    named: Named,
    bytes: u64,
    appointed: Option<u64>,
}

/// Of a mark in a snapshot.
const MARK_BYTES: usize = 24;

impl<M: Machine> Replica<M> {
    pub(super) fn save(&self) -> Result<Vec<Piece>, StoreError> {
        let head = Head {
            count: self.count,
            stamp: self.stamp,
            us: self.us,
            named: self.named,
            bytes: self.bytes,
            appointed: self.appointed,
        };
        let mut window = Vec::with_capacity(self.window.len() * MARK_BYTES);
        for mark in &self.window {
            window.extend_from_slice(&mark.revision.to_be_bytes());
            window.extend_from_slice(&mark.nonce.to_bytes());
        }
        let head = serde_json::value::to_raw_value(&head).map_err(errors::unwritable)?;
        let mut pieces = vec![(head, vec![Bytes::from(window)])];
        pieces.extend(self.machine.save()?);
        Ok(pieces)
    }

    /// `None` for what this version has not saved.
    pub(super) fn load(pieces: Vec<Piece>) -> Option<Self> {
        let mut pieces = pieces.into_iter();
        let (head, window) = pieces.next()?;
        let head: Head = serde_json::from_str(head.get()).ok()?;
        let [window] = window.as_slice() else {
            return None;
        };
        if head.named.covers > head.count {
            return None;
        }
        let mut replica = Self {
            machine: M::default(),
            last: Mark::default(),
            stamp: head.stamp,
            us: head.us,
            count: head.count,
            named: head.named,
            bytes: head.bytes,
            appointed: head.appointed,
            window: VecDeque::new(),
            known: HashMap::new(),
        };
        for mark in window.chunks(MARK_BYTES) {
            let (revision, nonce) = mark.split_at_checked(8)?;
            let mark = Mark {
                revision: u64::from_be_bytes(revision.try_into().ok()?),
                nonce: Nonce::from_bytes(nonce.try_into().ok()?),
            };
            if mark.revision <= replica.last.revision || replica.window.len() >= WINDOW {
                return None;
            }
            replica.note(mark);
        }
        replica.machine = M::load(pieces.collect())?;
        Some(replica)
    }
}
