//! Since when this client has seen each grant unchanged, by its own clock.
//!
//! Outside the state: every client has its own. A grant is over for an observer once
//! it stayed as it is for as long as it lasts, from when it was *seen*; its holder
//! counts from when the request was *sent*, which was earlier.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lease_core::{Clock, Moment};

use super::op::{Over, Seen};
use crate::name::Lane;
use crate::table::lane::Term;

#[derive(Debug)]
pub(super) struct Sights {
    clock: Arc<dyn Clock>,
    seen: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    lanes: HashMap<Lane, Sight>,
    /// In the order in which they end.
    ends: BTreeSet<(Moment, Lane)>,
}

#[derive(Clone, Copy, Debug)]
struct Sight {
    term: Term,
    since: Moment,
    /// It follows from a request of this client's own, and `since` is when that was
    /// sent: nobody has seen it earlier.
    own: bool,
}

impl Sight {
    fn end(&self) -> Moment {
        self.since.after(Duration::from_micros(self.term.lasts_us))
    }
}

impl All {
    fn set(&mut self, lane: &Lane, sight: Option<Sight>) {
        let before = match sight {
            Some(sight) => self.lanes.insert(lane.clone(), sight),
            None => self.lanes.remove(lane),
        };
        if let Some(before) = before {
            self.ends.remove(&(before.end(), lane.clone()));
        }
        if let Some(sight) = sight {
            self.ends.insert((sight.end(), lane.clone()));
        }
    }
}

impl Sights {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            seen: Mutex::default(),
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    /// Notes the lane's grant as it stands now, if one does.
    pub(super) fn see(&self, lane: &Lane, term: Option<Term>) {
        let since = self.clock.now();
        let mut all = self.all();
        let known = all.lanes.get(lane).map(|sight| sight.term);
        if known != term {
            let own = false;
            all.set(lane, term.map(|term| Sight { term, since, own }));
        }
    }

    /// What this client itself was granted, or extended, at that revision, by a
    /// request that was sent then: for itself it ends so much earlier.
    pub(super) fn sent(&self, lane: &Lane, revision: u64, then: Moment) {
        let mut all = self.all();
        let Some(sight) = all.lanes.get(lane).copied() else {
            return;
        };
        if sight.term.revision == revision {
            let (since, own) = (then.min(sight.since), true);
            let term = sight.term;
            all.set(lane, Some(Sight { term, since, own }));
        }
    }

    /// Grants that are over, the longest first, at most so many.
    pub(super) fn over(&self, most: usize) -> Vec<Over> {
        let now = self.clock.now();
        let all = self.all();
        let over = all.ends.iter().take_while(|(end, _)| *end <= now);
        let over = over.take(most).filter_map(|(_, lane)| {
            let revision = all.lanes.get(lane)?.term.revision;
            let lane = lane.clone();
            Some(Over { lane, revision })
        });
        over.collect()
    }

    /// The lane's grant, if one stands, and whether nobody has seen it earlier.
    pub(super) fn of(&self, lane: &Lane) -> Option<(Seen, bool)> {
        let now = self.clock.now();
        let sight = self.all().lanes.get(lane).copied()?;
        let left = sight.end().since(now);
        // Rounded up: what is not over has something left.
        let left_us = left.as_nanos().div_ceil(1000);
        let seen = Seen {
            revision: sight.term.revision,
            left_us: u64::try_from(left_us).unwrap_or(u64::MAX),
        };
        Some((seen, sight.own))
    }

    /// How long until the first of them is over.
    pub(super) fn next(&self) -> Option<Duration> {
        let now = self.clock.now();
        self.all().ends.first().map(|(end, _)| end.since(now))
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.seen.lock().unwrap_or_else(|e| e.into_inner())
    }
}
