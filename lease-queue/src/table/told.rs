//! Grants that no clock of the store ends: they stand until the table is told that
//! those who watched have seen them unchanged for as long as they last.

use lease_core::{Owner, Ttl};

use crate::name::Lane;
use crate::table::Table;
use crate::table::lane::{Grant, Now, Standing, Term};

impl Table {
    /// The lane's grant, as long as it stands in the way.
    pub(crate) fn standing(&self, lane: &Lane) -> Option<(&Grant, Term)> {
        let grant = self.row(lane)?.grant.as_ref()?;
        let stands = grant.standing != Standing::Released;
        grant.term.filter(|_| stands).map(|term| (grant, term))
    }

    /// The lane was just granted, and no clock ends that.
    pub(crate) fn watched(&mut self, lane: &Lane, term: Term) {
        if let Some(grant) = self.grant_mut(lane) {
            grant.term = Some(term);
        }
        self.reindex(lane);
    }

    /// Somebody has seen this grant, as it was at that revision, for as long as it
    /// lasts.
    pub(crate) fn over(&mut self, lane: &Lane, revision: u64, now: Now) {
        let same = |grant: &&mut Grant| grant.term.is_some_and(|term| term.revision == revision);
        if let Some(grant) = self.grant_mut(lane).filter(same) {
            grant.end(now);
            self.reindex(lane);
        }
    }

    /// The lane's grant was extended at that revision, by somebody who knows that it is
    /// over for nobody before `left_us`: `None` if they do not know that.
    pub(crate) fn extended(&mut self, lane: &Lane, ttl: Ttl, revision: u64, left_us: Option<u64>) {
        let Some(grant) = self.grant_mut(lane) else {
            return;
        };
        let Some(term) = grant.term.as_mut() else {
            return;
        };
        let ttl_us = ttl.as_micros();
        match left_us {
            // It lasts longer already.
            Some(left_us) if left_us >= ttl_us => {}
            Some(_) => {
                *term = Term {
                    revision,
                    lasts_us: ttl_us,
                };
            }
            // It may last for longer than that.
            None => {
                *term = Term {
                    revision,
                    lasts_us: term.lasts_us.max(ttl_us),
                };
            }
        }
    }

    /// What the owner was granted and has not given back.
    pub(crate) fn lanes_of(&self, owner: Owner) -> Vec<Lane> {
        let lanes = self.owned.get(&owner).into_iter().flatten();
        let mut lanes: Vec<Lane> = lanes.cloned().collect();
        lanes.sort_unstable();
        lanes
    }

    fn grant_mut(&mut self, lane: &Lane) -> Option<&mut Grant> {
        self.row_mut(lane)?.grant.as_mut()
    }
}
