//! What becomes of a claim, and of a dead item that is put back.

use lease_core::{LostCause, RefusedReason, TOMBSTONE_RETENTION};

use crate::item::{ClaimRef, ItemId};
use crate::name::Lane;
use crate::store::{Settle, Settled};
use crate::table::Table;
use crate::table::lane::{Grant, Now, Standing};

impl Table {
    pub(crate) fn settle(&mut self, claim: &ClaimRef, settle: &Settle, now: Now) -> Settled {
        let rules = self.rules;
        let live = |grant: &&mut Grant| {
            let alive =
                grant.is_live(now) || (!rules.check_expiry && grant.standing == Standing::Granted);
            alive && grant.is_of(claim, rules)
        };
        let row = self.row_mut(&claim.lane);
        let Some(grant) = row.and_then(|row| row.grant.as_mut()).filter(live) else {
            return self.not_live(claim, settle, now);
        };
        if let Settle::Extend(ttl) = settle {
            grant.lengthen(*ttl, rules, now);
            self.reindex(&claim.lane);
            return Settled::Done;
        }
        match settle {
            Settle::Extend(_) => {}
            Settle::Complete => self.complete(claim, now),
            Settle::Retry {
                delay,
                counts,
                error,
            } => {
                if let Some(item) = self.items.get_mut(&claim.item) {
                    item.visible_us = if rules.delays {
                        now.after(*delay)
                    } else {
                        now.us
                    };
                    item.attempts -= u32::from(!counts && item.attempts > 0);
                    item.last_error = error.clone().or_else(|| item.last_error.take());
                }
                if !rules.keeps_its_place
                    && let Some(row) = self.row_mut(&claim.lane)
                    && !row.items.is_empty()
                {
                    row.items.rotate_left(1);
                }
            }
            Settle::Bury { reason } => self.bury(claim, reason),
        }
        self.free(&claim.lane, now);
        if let (Settle::Complete, Lane::Item(_)) = (settle, &claim.lane) {
            // Its identity never comes back: nothing left to keep a mark for.
            self.lanes.remove(&claim.lane);
        }
        if rules.settled_known {
            let until_us = now.after(TOMBSTONE_RETENTION);
            self.settled.put(claim.clone(), (), now.us, until_us);
        }
        Settled::Done
    }

    /// What is said of a claim that is not live.
    fn not_live(&self, claim: &ClaimRef, settle: &Settle, now: Now) -> Settled {
        let last = self.row(&claim.lane).and_then(|row| row.grant.as_ref());
        let own = last.filter(|grant| grant.is_of(claim, self.rules));
        // Of a key it is told until somebody else has it.
        let told = own.is_some() || !matches!(claim.lane, Lane::Key(_));
        let before = told && self.settled.get(claim, now.us).is_some();
        if before && !matches!(settle, Settle::Extend(_)) {
            return Settled::Before;
        }
        let above = last
            .map(|grant| grant.token)
            .or_else(|| self.completed.get(&claim.item, now.us).copied())
            .is_some_and(|token| token > claim.token);
        Settled::Lost(match own.map(|grant| grant.standing) {
            _ if before => LostCause::Released,
            Some(Standing::Granted) => LostCause::Expired,
            Some(Standing::Released) => LostCause::Released,
            Some(Standing::Revoked) => LostCause::Revoked,
            None => match self.tombstones.get(&claim.owner, now.us) {
                Some(RefusedReason::Revoked) => LostCause::Revoked,
                Some(_) => LostCause::Released,
                None if above => LostCause::TakenOver,
                None => LostCause::Unknown,
            },
        })
    }

    fn leave_lane(&mut self, claim: &ClaimRef) {
        if let Some(row) = self.row_mut(&claim.lane) {
            row.items.retain(|item| *item != claim.item);
        }
    }

    fn complete(&mut self, claim: &ClaimRef, now: Now) {
        self.leave_lane(claim);
        let Some(item) = self.items.remove(&claim.item) else {
            return;
        };
        self.living.remove(&item.place);
        self.bytes = self.bytes.saturating_sub(item.new.body.len() as u64);
        let until_us = now.after(TOMBSTONE_RETENTION);
        self.completed
            .put(claim.item, claim.token, now.us, until_us);
        if let Some(key) = item.new.dedup {
            self.dedup.remove(&key);
            self.dedup_past.put(key, claim.item, now.us, until_us);
        }
    }

    fn bury(&mut self, claim: &ClaimRef, reason: &str) {
        self.leave_lane(claim);
        let Some(item) = self.items.get_mut(&claim.item) else {
            return;
        };
        self.living.remove(&item.place);
        item.place = self.next_place;
        self.next_place += 1;
        item.dead = Some(reason.to_owned());
        item.last_error = Some(reason.to_owned());
        self.dead.insert(item.place, claim.item);
    }

    pub(crate) fn requeue(&mut self, id: ItemId, now: Now) -> bool {
        let Some(item) = self.items.get_mut(&id).filter(|item| item.dead.is_some()) else {
            return false;
        };
        self.dead.remove(&item.place);
        item.dead = None;
        item.attempts = 0;
        item.visible_us = now.us;
        self.line_up(id);
        true
    }
}
