//! The record of a lane as a register: read it, and replace it if it is still there.
//!
//! On one server the stream keeps one message for each subject, and the server takes
//! a new one only if the last is the expected one: that is all.
//!
//! On several servers this check is not enough. Up to NATS 2.9.20 at least, the leader
//! makes it before a message goes into the log, so that of two at the same time both may
//! be acknowledged (nats-server issue 4320; with three replicas of 2.9.10 the suite saw
//! two owners with one token). So the log itself decides, whatever the version: each
//! record names the one that it replaces, which had effect when its writer read it, and
//! **of those that replace the same one, the first in the log has effect**. The log is
//! the same on every server. Whoever wrote a record reads the log behind the one that it
//! replaced, before it answers.
//!
//! The server drops a subject's oldest message when there are [`MOST_BEHIND`], and that
//! is the only way in which any is removed: as long as fewer are behind a record, none of
//! those behind it is missing. Nothing is deleted nor purged: with replicas of 2.9.10 that
//! were killed one at a time, messages deleted by their sequence took others along, and a
//! purge by subject emptied the stream (nats-server issue 4196).

use std::cmp::Ordering;

use lease_core::StoreError;
use tokio::time::Instant;

use super::errors;
use super::lane::Lanes;
use super::link::{Set, Stored, Which};
use super::record::Record;
use super::sight::View;

/// The messages of one lane that a stream with replicas keeps. As many clients would
/// have to ask for the same key before one of them is answered.
pub(super) const MOST_BEHIND: usize = 1024;

/// What of the log was read, and which record has effect by that.
struct Walk {
    /// The latest revision that had effect for sure.
    named: u64,
    /// The first message that replaces it.
    first: Option<(u64, Record)>,
    /// The last message that was read; 0 for none.
    last: u64,
    /// What each of them replaces.
    replaced: Vec<u64>,
}

/// How far a walk is that goes to a message.
#[derive(Debug, PartialEq, Eq)]
enum Reach {
    Before,
    At,
    /// That message was dropped meanwhile, and what was before it: the first that replaces
    /// something may have been among those.
    Past,
}

impl Walk {
    fn from(named: u64) -> Self {
        Self {
            named,
            first: None,
            last: 0,
            replaced: Vec::new(),
        }
    }

    fn reaches(&self, until: u64) -> Reach {
        match self.last.cmp(&until) {
            Ordering::Less => Reach::Before,
            Ordering::Equal => Reach::At,
            Ordering::Greater => Reach::Past,
        }
    }

    /// Takes the next message of the log.
    fn step(&mut self, revision: u64, record: Record) {
        self.last = revision;
        self.replaced.push(record.prev);
        if record.prev > self.named || (record.prev == self.named && self.first.is_none()) {
            self.named = record.prev;
            self.first = Some((revision, record));
        }
    }
}

impl Lanes {
    /// Reads the record, and notes that it was seen.
    pub(super) async fn look(&self, subject: &str, deadline: Instant) -> Result<View, StoreError> {
        if self.link.replicated {
            return self.follow(subject, deadline).await;
        }
        match self.link.read(subject, Which::Last, deadline).await? {
            None => Ok(self.sights.see(subject, 0, 0, Record::default())),
            Some(stored) => {
                let record = self.decode(subject, &stored)?;
                let revision = stored.revision;
                Ok(self.sights.see(subject, revision, revision, record))
            }
        }
    }

    /// Follows the log from what this client saw last, or from what the last message
    /// replaces where that came later: whatever had effect since then comes after it.
    async fn follow(&self, subject: &str, deadline: Instant) -> Result<View, StoreError> {
        let known = self.sights.last(subject).filter(|view| view.revision > 0);
        let newest = self.link.read(subject, Which::Last, deadline).await?;
        let (named, until) = match (&newest, &known) {
            (None, None) => return Ok(self.sights.see(subject, 0, 0, Record::default())),
            (Some(stored), None) => (self.decode(subject, stored)?.prev, stored.revision),
            (Some(stored), Some(view)) if stored.revision > view.last => {
                let named = self.decode(subject, stored)?.prev.max(view.revision);
                (named, stored.revision)
            }
            // Nothing new; or a server that is behind the one that answered before.
            (_, Some(_)) => (0, 0),
        };
        let walk = match until {
            0 => Walk::from(named),
            _ => self.walk(subject, named, Some(until), deadline).await?,
        };
        match (walk.first, known) {
            (Some((revision, record)), _) => {
                Ok(self.sights.see(subject, revision, walk.last, record))
            }
            (None, Some(view)) => {
                let last = walk.last.max(view.last);
                Ok(self.sights.see(subject, view.revision, last, view.record))
            }
            // A server that is behind the one that answered before.
            (None, None) => Err(StoreError::unavailable(
                "the servers do not agree on the record yet; try again",
            )),
        }
    }

    /// Reads what is in the log behind a revision that had effect: all of it, or until
    /// that message.
    async fn walk(
        &self,
        subject: &str,
        named: u64,
        until: Option<u64>,
        deadline: Instant,
    ) -> Result<Walk, StoreError> {
        let mut walk = Walk::from(named);
        let mut from = named + 1;
        while let Some(stored) = self.link.read(subject, Which::From(from), deadline).await? {
            walk.step(stored.revision, self.decode(subject, &stored)?);
            from = stored.revision + 1;
            if walk.replaced.len() >= MOST_BEHIND {
                return Err(errors::flooded(subject));
            }
            match until.map(|until| walk.reaches(until)) {
                Some(Reach::At) => break,
                Some(Reach::Past) => return Err(errors::outrun()),
                Some(Reach::Before) | None => {}
            }
        }
        Ok(walk)
    }

    /// Replaces what was seen by this record, if it is still what has effect.
    pub(super) async fn replace(
        &self,
        subject: &str,
        view: &View,
        record: &Record,
        deadline: Instant,
    ) -> Set {
        let payload = match record.encode() {
            Ok(payload) => payload,
            Err(e) => return Set::Not(errors::refusing("the record cannot be written", e)),
        };
        if !self.link.replicated {
            let expected = Some(view.revision);
            return self.link.set(subject, expected, payload, deadline).await;
        }
        // It spares the log those that are late anyway. Servers do not agree well on
        // an expected 0 (nats-server pull request 5794).
        let expected = (view.last > 0).then_some(view.last);
        match self.link.set(subject, expected, payload, deadline).await {
            Set::Done(revision) => self.verified(subject, view, revision, deadline).await,
            set => {
                if matches!(set, Set::Moved) {
                    // Should the stream be another one by now, its revisions are lower.
                    self.sights.doubt(subject);
                }
                set
            }
        }
    }

    /// Whether what was stored to replace what was seen has effect.
    async fn verified(&self, subject: &str, view: &View, revision: u64, deadline: Instant) -> Set {
        let walk = loop {
            match self.walk(subject, view.revision, None, deadline).await {
                Ok(walk) if walk.last >= revision => break walk,
                // A server that is behind the one that acknowledged it.
                Ok(_) if self.link.pause(deadline).await.is_ok() => {}
                Ok(_) => {
                    let error = StoreError::unavailable("no server has the record yet");
                    return Set::Unknown(errors::not_verified(error));
                }
                Err(error) => return Set::Unknown(errors::not_verified(error)),
            }
        };
        if walk.replaced.contains(&revision) {
            // It had effect, and somebody has built on it since.
            return Set::Done(revision);
        }
        match walk.first {
            Some((first, record)) if walk.named == view.revision => {
                if first == revision {
                    // With the server's stamp.
                    self.sights.see(subject, revision, walk.last, record);
                    return Set::Done(revision);
                }
                self.sights.doubt(subject);
                Set::Moved
            }
            // Others have got further, and ours may be gone: a new look tells.
            _ => Set::Unknown(errors::overtaken()),
        }
    }

    fn decode(&self, subject: &str, stored: &Stored) -> Result<Record, StoreError> {
        let record = Record::decode(&stored.payload).ok_or_else(|| errors::foreign(subject))?;
        Ok(record.aged(stored.stored_ms, self.retention))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has effect by these messages, each with what it replaces.
    fn tip(named: u64, log: &[(u64, u64)]) -> Option<u64> {
        let mut walk = Walk::from(named);
        for (revision, prev) in log {
            let record = Record {
                prev: *prev,
                ..Record::default()
            };
            walk.step(*revision, record);
        }
        walk.first.map(|(revision, _)| revision)
    }

    #[test]
    fn of_those_that_replace_the_same_record_the_first_has_effect() {
        assert_eq!(tip(0, &[(1, 0), (2, 0), (3, 0)]), Some(1));
        assert_eq!(tip(0, &[(1, 0), (2, 0), (5, 1), (6, 1), (7, 0)]), Some(5));
        // One that was under way for long, and lands after its time.
        assert_eq!(tip(5, &[(8, 1), (9, 5), (10, 0), (11, 9)]), Some(11));
        // Nothing that came since then has effect.
        assert_eq!(tip(5, &[(8, 1), (9, 4)]), None);
    }

    /// Whoever stood still between two reads, while others wrote as many as are kept.
    #[test]
    fn a_walk_that_does_not_meet_its_end_says_so() {
        let mut walk = Walk::from(5);
        for (revision, reach) in [(6, Reach::Before), (8, Reach::At), (2_000, Reach::Past)] {
            walk.step(revision, Record::default());
            assert_eq!(walk.reaches(8), reach);
        }
    }

    /// A chain, with messages among it that have no effect, of which the oldest are gone:
    /// wherever one begins to read, so that none behind that place is missing.
    #[test]
    fn the_same_record_has_effect_wherever_one_begins() {
        let log = [
            (10, 9),
            (12, 10),
            (13, 10),
            (15, 12),
            (16, 12),
            (20, 15),
            (21, 15),
            (30, 12),
        ];
        for named in [9, 10, 12, 15] {
            let behind: Vec<_> = log.iter().copied().filter(|m| m.0 > named).collect();
            assert_eq!(tip(named, &behind), Some(20), "from {named}");
        }
        assert_eq!(tip(20, &[(21, 15), (30, 12)]), None);
    }
}
