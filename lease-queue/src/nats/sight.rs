//! What this client has seen of the records, and since when each grant, and each place in
//! line, is unchanged.
//!
//! The store has no clock to ask: a grant is over for an observer when it stayed as it is
//! for as long as it lasts, by the observer's own clock, from the moment at which it was
//! *seen*. Its holder counts from the send of the request that wrote it, which was
//! earlier. That the record around it changes, since others wait or have given up, is no
//! matter: a grant has a stamp of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lease_core::{Clock, Moment, Owner, SystemClock, Token};

use super::record::{Nonce, Record, Standing};

/// Records that one client remembers. To forget one only makes a take-over of it
/// later, and a renewal a round trip longer.
const MOST: usize = 8192;

/// A record as it stands to this client.
#[derive(Clone, Debug)]
pub(super) struct View {
    /// The message's sequence in the stream; 0 for none.
    pub(super) revision: u64,
    /// The sequence of the last message of this subject, which may be one without
    /// effect: see `chain`.
    pub(super) last: u64,
    /// Empty where there is no message.
    pub(super) record: Record,
    /// How long its grant is known to be as it is; without one, for how long this key is
    /// known.
    pub(super) unchanged: Duration,
    /// How long its grant is known to stand, whatever its renewals.
    pub(super) age: Duration,
    /// When the request was sent by which this client itself wrote the grant.
    pub(super) written: Option<Moment>,
    /// Of each place in line.
    pub(super) places: Vec<Seen>,
    /// No other record of this key was seen before: of how long this one has stood there,
    /// and its line with it, nothing is known.
    pub(super) is_first: bool,
}

/// How long a place is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// As it is.
    pub(super) unchanged: Duration,
    /// At all.
    pub(super) waits: Duration,
}

#[derive(Debug)]
struct Sight {
    revision: u64,
    last: u64,
    record: Record,
    /// It has not become another one yet.
    is_first: bool,
    /// When the record became another one.
    changed: Moment,
    since: Moment,
    granted: Moment,
    doubted: bool,
    written: Option<Moment>,
    /// Of each place in line, since when it is as it is, and since when there is one.
    places: Vec<(Moment, Moment)>,
}

fn token(record: &Record) -> Option<Token> {
    record.grant.as_ref().map(|grant| grant.token)
}

fn stamp(record: &Record) -> Option<Nonce> {
    record.grant.as_ref().map(|grant| grant.stamp)
}

impl Sight {
    fn new(revision: u64, last: u64, record: Record, now: Moment) -> Self {
        Self {
            revision,
            last,
            places: vec![(now, now); record.line.len()],
            record,
            is_first: true,
            changed: now,
            since: now,
            granted: now,
            doubted: false,
            written: None,
        }
    }

    fn is_now(&mut self, revision: u64, last: u64, record: Record, now: Moment) {
        self.doubted = false;
        if self.revision == revision && self.record.nonce == record.nonce {
            self.last = self.last.max(last);
            // One that was read says more than one that was heard of.
            if record.is_stamped() {
                self.take(record, now);
            }
            return;
        }
        self.revision = revision;
        self.last = last;
        self.is_first = false;
        self.changed = now;
        if stamp(&self.record) != stamp(&record) {
            self.since = now;
            self.written = None;
        }
        if token(&self.record) != token(&record) {
            self.granted = now;
        }
        self.take(record, now);
    }

    /// What is known of its places goes on.
    fn take(&mut self, record: Record, now: Moment) {
        // Places leave, and come at the end: the order is the same.
        let mut from = 0;
        let mut places = Vec::with_capacity(record.line.len());
        for place in &record.line {
            let known = self.record.line.iter().zip(&self.places).enumerate();
            let mut known = known.skip(from);
            places.push(match known.find(|(_, (old, _))| old.owner == place.owner) {
                Some((at, (old, (since, first)))) => {
                    from = at + 1;
                    match (old.asked == place.asked, now.since(*since) < old.lasts()) {
                        (true, _) => (*since, *first),
                        (false, true) => (now, *first),
                        // That one was over.
                        (false, false) => (now, now),
                    }
                }
                None => (now, now),
            });
        }
        self.places = places;
        self.record = record;
    }

    fn view(&self, now: Moment) -> View {
        let seen = |(since, first): &(Moment, Moment)| Seen {
            unchanged: now.since(*since),
            waits: now.since(*first),
        };
        View {
            revision: self.revision,
            last: self.last,
            record: self.record.clone(),
            unchanged: now.since(self.since),
            age: now.since(self.granted),
            written: self.written,
            places: self.places.iter().map(seen).collect(),
            is_first: self.is_first,
        }
    }
}

#[derive(Debug)]
pub(super) struct Sights {
    clock: Arc<dyn Clock>,
    seen: Mutex<HashMap<String, Sight>>,
}

impl Default for Sights {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock::new()))
    }
}

impl Sights {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let seen = Mutex::default();
        Self { clock, seen }
    }

    /// Notes a record that is there, **after** it was seen to be, and looks at it.
    pub(super) fn see(&self, subject: &str, revision: u64, last: u64, record: Record) -> View {
        let now = self.clock.now();
        let mut seen = self.seen();
        if let Some(sight) = seen.get_mut(subject) {
            sight.is_now(revision, last, record, now);
            return sight.view(now);
        }
        if seen.len() >= MOST {
            forget_the_older_half(&mut seen);
        }
        let sight = Sight::new(revision, last, record, now);
        let view = sight.view(now);
        seen.insert(subject.to_owned(), sight);
        view
    }

    /// The record as this client saw it last, if it has no reason to doubt that; it
    /// may have changed since.
    pub(super) fn last(&self, subject: &str) -> Option<View> {
        let seen = self.seen();
        let sight = seen.get(subject).filter(|sight| !sight.doubted)?;
        Some(sight.view(self.clock.now()))
    }

    /// As [`see`](Self::see), of one that this client wrote by a request of then.
    pub(super) fn wrote(&self, subject: &str, revision: u64, record: Record, sent: Moment) {
        let of_grant = record.is_of_the_grant();
        self.see(subject, revision, revision, record);
        if let Some(sight) = self.seen().get_mut(subject)
            && sight.revision == revision
            && of_grant
        {
            sight.written = Some(sent);
        }
    }

    /// The subjects with this beginning whose grant, or a place in whose line, was this
    /// owner's when it was seen last.
    pub(super) fn of_owner(&self, before: &str, owner: Owner) -> Vec<String> {
        let own = |sight: &Sight| {
            let record = &sight.record;
            let holds = record.grant.as_ref();
            holds.is_some_and(|g| g.owner == owner && g.standing != Standing::Released)
                || record.line.iter().any(|place| place.owner == owner)
        };
        let seen = self.seen();
        let found = seen
            .iter()
            .filter(|(subject, sight)| subject.starts_with(before) && own(sight));
        found.map(|(subject, _)| subject.clone()).collect()
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// There is more than was seen of it, or another stream. The next look starts at
    /// its end; should the record still be the same, its time goes on.
    pub(super) fn doubt(&self, subject: &str) {
        if let Some(sight) = self.seen().get_mut(subject) {
            sight.doubted = true;
        }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<String, Sight>> {
        self.seen.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn forget_the_older_half(seen: &mut HashMap<String, Sight>) {
    let mut moments: Vec<Moment> = seen.values().map(|sight| sight.changed).collect();
    let middle = moments.len() / 2;
    let (_, middle, _) = moments.select_nth_unstable(middle);
    let middle = *middle;
    seen.retain(|_, sight| sight.changed > middle);
}

#[cfg(test)]
mod tests;
