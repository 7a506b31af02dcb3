//! What this client has seen of the records, and since when each is unchanged.
//!
//! The store has no clock to ask: a grant is over for an observer when its record
//! stayed as it is for as long as the grant lasts, by the observer's own clock, from
//! the moment at which the record was *seen*. Its holder counts from the send of the
//! request that wrote it, which was earlier.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use lease_core::{Clock, Moment, Owner, SystemClock, Token};

use super::record::{Record, Standing};

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
    /// How long it is known to be as it is.
    pub(super) unchanged: Duration,
    /// How long its grant is known to stand.
    pub(super) age: Duration,
    /// When the request was sent by which this client itself wrote it.
    pub(super) written: Option<Moment>,
}

#[derive(Debug)]
struct Sight {
    revision: u64,
    last: u64,
    record: Record,
    since: Moment,
    granted: Moment,
    doubted: bool,
    written: Option<Moment>,
}

impl Sight {
    fn token(&self) -> Option<Token> {
        self.record.grant.as_ref().map(|grant| grant.token)
    }

    fn view(&self, now: Moment) -> View {
        View {
            revision: self.revision,
            last: self.last,
            record: self.record.clone(),
            unchanged: now.since(self.since),
            age: now.since(self.granted),
            written: self.written,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Sights {
    clock: SystemClock,
    seen: Mutex<HashMap<String, Sight>>,
}

impl Sights {
    /// Notes a record that is there, **after** it was seen to be, and looks at it.
    pub(super) fn see(&self, subject: &str, revision: u64, last: u64, record: Record) -> View {
        let now = self.clock.now();
        let mut seen = self.seen();
        if let Some(sight) = seen.get_mut(subject) {
            sight.last = last;
            sight.doubted = false;
            if sight.revision != revision {
                let token = sight.token();
                sight.revision = revision;
                sight.since = now;
                sight.record = record;
                sight.written = None;
                if sight.token() != token {
                    sight.granted = now;
                }
            }
            return sight.view(now);
        }
        if seen.len() >= MOST {
            forget_the_older_half(&mut seen);
        }
        let sight = Sight {
            revision,
            last,
            record,
            since: now,
            granted: now,
            doubted: false,
            written: None,
        };
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
        self.see(subject, revision, revision, record);
        if let Some(sight) = self.seen().get_mut(subject)
            && sight.revision == revision
        {
            sight.written = Some(sent);
        }
    }

    /// The subjects with this beginning whose grant was this owner's when it was seen
    /// last.
    pub(super) fn of_owner(&self, before: &str, owner: Owner) -> Vec<String> {
        let own = |sight: &Sight| {
            let grant = sight.record.grant.as_ref();
            grant.is_some_and(|g| g.owner == owner && g.standing != Standing::Released)
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
    let mut moments: Vec<Moment> = seen.values().map(|sight| sight.since).collect();
    let middle = moments.len() / 2;
    let (_, middle, _) = moments.select_nth_unstable(middle);
    let middle = *middle;
    seen.retain(|_, sight| sight.since > middle);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_revision_starts_the_time_anew() {
        let sights = Sights::default();
        let first = sights.see("a", 1, 1, Record::default());
        assert_eq!(first.unchanged, Duration::ZERO);
        std::thread::sleep(Duration::from_millis(2));
        assert!(sights.see("a", 1, 1, Record::default()).unchanged >= Duration::from_millis(2));
        assert_eq!(
            sights.see("a", 2, 2, Record::default()).unchanged,
            Duration::ZERO
        );
        assert_eq!(sights.last("a").unwrap().revision, 2);
        assert!(sights.last("b").is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let sights = Sights::default();
        for n in 0..=MOST {
            sights.see(&n.to_string(), 1, 1, Record::default());
        }
        assert!(sights.seen().len() <= MOST);
        assert!(sights.last(&MOST.to_string()).is_some());
    }
}
