//! Looks at a state that change nothing.

use std::time::Duration;

use lease_core::{Moment, Owner};

use super::machine::Queue;
use super::op::{Over, Seen};
use crate::item::{ClaimRef, ItemState};
use crate::name::Lane;
use crate::store::Depth;
use crate::table::lane::{Grant, Now};

impl Queue {
    pub(super) fn depth(&self) -> Depth {
        self.table
            .depth(self.now(), &|lane, grant| self.left(lane, grant))
    }

    /// A page of items behind a place, with their own.
    pub(super) fn page(
        &self,
        dead: bool,
        after: Option<u64>,
        most: usize,
    ) -> Vec<(u64, ItemState)> {
        let left = |lane: &Lane, grant: &Grant| self.left(lane, grant);
        self.table.item_page(dead, after, most, self.now(), &left)
    }

    /// Where items are put from now on.
    pub(super) fn end_place(&self) -> u64 {
        self.table.next_place
    }

    /// What this client may say of the claim's grant: that it is over, or for how long
    /// it is over for nobody. The latter only if the grant follows from its own request:
    /// others may have seen an older one before it did.
    pub(super) fn seen(&self, claim: &ClaimRef) -> Option<Seen> {
        let (grant, term) = self.table.standing(&claim.lane)?;
        let meant = grant.is_of(claim, self.table.rules);
        let (seen, own) = self.sights.of(&claim.lane).filter(|_| meant)?;
        let knows = own || seen.left_us == 0;
        (knows && seen.revision == term.revision).then_some(seen)
    }

    /// What the claim was granted or extended by at that revision was sent then, by this
    /// client.
    pub(super) fn note_sent(&self, claim: &ClaimRef, revision: u64, then: Moment) {
        let standing = self.table.standing(&claim.lane);
        // Another owner may have it by the same message.
        if standing.is_some_and(|(grant, _)| grant.is_of(claim, self.table.rules)) {
            self.sights.sent(&claim.lane, revision, then);
        }
    }

    /// Which of the owner's grants are over.
    pub(super) fn over_of(&self, owner: Owner) -> Vec<Over> {
        let lanes = self.table.lanes_of(owner);
        lanes.iter().filter_map(|lane| self.over_at(lane)).collect()
    }

    /// The lane's grant, if it is over.
    pub(super) fn over_at(&self, lane: &Lane) -> Option<Over> {
        let seen = self.sights.of(lane)?.0;
        if seen.left_us > 0 {
            return None;
        }
        Some(Over {
            lane: lane.clone(),
            revision: seen.revision,
        })
    }

    fn left(&self, lane: &Lane, grant: &Grant) -> Duration {
        match (grant.term, self.sights.of(lane)) {
            (Some(term), Some((seen, _))) if seen.revision == term.revision => {
                Duration::from_micros(seen.left_us)
            }
            (Some(term), _) => Duration::from_micros(term.lasts_us),
            // Somebody saw its end.
            (None, _) => Duration::ZERO,
        }
    }

    fn now(&self) -> Now {
        let us = self.servers.now_us(self.sights.now());
        Now { us, epoch_us: us }
    }
}
