//! The record of a lane as a register: read it, and replace it if it is still there.
//!
//! On one server the stream keeps one message for each subject, and the server takes
//! a new one only if the last is the expected one: that is all.
//!
//! On several servers this check is not enough. Up to NATS 2.9.20 at least, the leader makes it
//! before a message goes into the log, so that of two at the same time both may be
//! acknowledged (nats-server issue 4320; with three replicas of 2.9.10 the suite saw
//! two owners with one token). So the log itself decides, whatever the version: each
//! record names the one that it replaces, **and of those that replace the same one,
//! the first in the log has effect**. The log is the same on every server. A message
//! without effect stays until somebody tidies up, and whoever wrote it finds out
//! before it answers: it reads what follows the record that it replaced.
//!
//! Messages are removed only before one that has effect, so that what is found first
//! after a gap has effect, too.

use lease_core::StoreError;
use tokio::time::Instant;

use super::errors;
use super::lane::Lanes;
use super::link::{Set, Stored, Which};
use super::record::Record;
use super::sight::View;

/// Of so many records one is followed by a tidying, on average.
const TIDY_EVERY: u64 = 8;

/// The record that has effect, as far as the log was read.
struct Walk {
    /// Its revision, and itself once it was read.
    valid: u64,
    record: Option<Record>,
    /// The last message that was read.
    last: u64,
}

impl Walk {
    /// Takes the next message of the log.
    fn step(&mut self, revision: u64, record: Record) {
        self.last = revision;
        // A later one than ours is replaced by it only if ours was, too, and is gone.
        if record.prev >= self.valid {
            self.valid = revision;
            self.record = Some(record);
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

    /// Follows the log from what is known to have had effect: what this client saw
    /// last, or else what the last message replaces.
    async fn follow(&self, subject: &str, deadline: Instant) -> Result<View, StoreError> {
        let (mut walk, end) = match self.sights.last(subject).filter(|v| v.revision > 0) {
            Some(view) => {
                let walk = Walk {
                    valid: view.revision,
                    record: Some(view.record),
                    last: view.last,
                };
                (walk, u64::MAX)
            }
            None => match self.link.read(subject, Which::Last, deadline).await? {
                None => return Ok(self.sights.see(subject, 0, 0, Record::default())),
                Some(stored) => {
                    let walk = Walk {
                        valid: self.decode(subject, &stored)?.prev,
                        record: None,
                        last: 0,
                    };
                    (walk, stored.revision)
                }
            },
        };
        let mut from = walk.valid.max(walk.last) + 1;
        while from <= end {
            let Some(stored) = self.link.read(subject, Which::From(from), deadline).await? else {
                break;
            };
            walk.step(stored.revision, self.decode(subject, &stored)?);
            from = stored.revision + 1;
        }
        match walk.record {
            Some(record) => Ok(self.sights.see(subject, walk.valid, walk.last, record)),
            // A server that is behind the one that answered before.
            None => Err(StoreError::unavailable(
                "the servers do not agree on the record yet; try again",
            )),
        }
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
        let set = self.link.set(subject, expected, payload, deadline).await;
        let Set::Done(revision) = set else {
            if matches!(set, Set::Moved) {
                // Should the stream be another one by now, its revisions are lower.
                self.sights.doubt(subject);
            }
            return set;
        };
        match self
            .is_first(subject, view.revision, revision, deadline)
            .await
        {
            Ok(true) => {
                if revision.is_multiple_of(TIDY_EVERY) {
                    self.link.forget_before(subject, revision);
                }
                Set::Done(revision)
            }
            Ok(false) => Set::Moved,
            Err(error) => Set::Unknown(errors::not_verified(error)),
        }
    }

    /// Whether of those that replace `prev` the stored `revision` is the first.
    async fn is_first(
        &self,
        subject: &str,
        prev: u64,
        revision: u64,
        deadline: Instant,
    ) -> Result<bool, StoreError> {
        let mut from = prev + 1;
        loop {
            let Some(stored) = self.link.read(subject, Which::From(from), deadline).await? else {
                // A server that is behind the one that acknowledged it.
                if self.link.pause(deadline).await.is_err() {
                    return Err(StoreError::unavailable("no server has the record yet"));
                }
                continue;
            };
            if stored.revision == revision {
                return Ok(true);
            }
            if stored.revision > revision {
                return Err(StoreError::unavailable(
                    "it was replaced and removed before it was read again",
                ));
            }
            if self.decode(subject, &stored)?.prev >= prev {
                return Ok(false);
            }
            from = stored.revision + 1;
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

    /// What has effect after these messages, each with what it replaces.
    fn valid(from: u64, log: &[(u64, u64)]) -> u64 {
        let mut walk = Walk {
            valid: from,
            record: None,
            last: 0,
        };
        for (revision, prev) in log {
            let record = Record {
                prev: *prev,
                ..Record::default()
            };
            walk.step(*revision, record);
        }
        walk.valid
    }

    #[test]
    fn of_those_that_replace_the_same_record_the_first_has_effect() {
        assert_eq!(valid(0, &[(1, 0), (2, 0), (3, 0)]), 1);
        assert_eq!(valid(0, &[(1, 0), (2, 0), (5, 1), (6, 1), (7, 2)]), 5);
        // One that was under way for long, and lands after its time.
        assert_eq!(valid(5, &[(8, 1), (9, 5), (10, 0), (11, 9)]), 11);
    }

    #[test]
    fn what_is_first_after_a_gap_has_effect() {
        // 12 replaced 10, 15 replaced 12, and all before 15 was removed.
        assert_eq!(valid(10, &[(15, 12), (16, 12), (17, 10)]), 15);
    }
}
