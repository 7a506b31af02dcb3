//! What a worker saw of its claims, written down as it happens: whoever is killed has
//! told all that it knew.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use lease_core::{Owner, Token};
use serde::{Deserialize, Serialize};

/// Nanoseconds on the one monotonic clock of the machine, the same in each process.
pub(crate) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap();
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

/// A payload: the item's group, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) group: usize,
    pub(crate) number: u32,
}

/// Which claim. An owner has at most one in each group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Of {
    pub(crate) group: usize,
    /// Its bytes.
    pub(crate) owner: u128,
    pub(crate) token: u64,
}

impl Of {
    pub(crate) fn new(group: usize, owner: Owner, token: Token) -> Self {
        Self {
            group,
            owner: u128::from_be_bytes(*owner.as_bytes()),
            token: token.get(),
        }
    }
}

/// How the store answered what ends a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answered {
    Done,
    Before,
    Lost,
}

/// One thing that a worker saw. All times are of [`now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Seen {
    /// The store gave an item.
    Claimed {
        of: Of,
        work: Work,
        attempt: u32,
        /// Before it was asked.
        asked: u64,
        /// When it had answered.
        from: u64,
        /// The claim's deadline.
        until: u64,
    },
    /// The store confirmed an extension.
    Extended { of: Of, until: u64 },
    /// What ends the claim is about to be sent.
    Ending { of: Of, at: u64 },
    /// The store answered that.
    Ended {
        of: Of,
        completes: bool,
        answered: Answered,
    },
    /// An owner is about to be abandoned.
    Abandoning { owner: u128, at: u64 },
    /// The work of an item begins, and with it what ends with a write.
    Begun { work: Work, token: u64 },
    /// That has ended.
    Over {
        work: Work,
        token: u64,
        /// Whether the write was refused, because its owner was over.
        refused: bool,
    },
}

/// A worker's own file of what it saw.
#[derive(Debug)]
pub(crate) struct Record(File);

impl Record {
    pub(crate) fn open(path: &Path) -> Self {
        let mut options = File::options();
        Self(options.create(true).append(true).open(path).unwrap())
    }

    pub(crate) fn note(&self, seen: &Seen) {
        // In one call: only who is killed leaves a part of it.
        let mut line = serde_json::to_string(seen).unwrap();
        line.push('\n');
        (&self.0).write_all(line.as_bytes()).unwrap();
    }
}

/// All that one worker saw.
pub(crate) fn read(path: &Path) -> Vec<Seen> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // It may have been killed within its last line.
    let whole = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    whole
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Whether this worker is at work on some item.
pub(crate) fn is_at_work(path: &Path) -> bool {
    let mut works = BTreeSet::new();
    for seen in read(path) {
        match seen {
            Seen::Begun { work, token } => drop(works.insert((work, token))),
            Seen::Over { work, token, .. } => drop(works.remove(&(work, token))),
            _ => {}
        }
    }
    !works.is_empty()
}
