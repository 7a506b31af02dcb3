//! Looks at a queue that change nothing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use lease_core::{Holder, Key, KeyState};

use crate::item::{ItemId, ItemState, Phase};
use crate::name::Lane;
use crate::store::Depth;
use crate::table::lane::{Grant, Now};
use crate::table::{Item, Table};

/// How long the grant of a lane still lasts; zero if it is over.
pub(crate) type Left<'a> = &'a dyn Fn(&Lane, &Grant) -> Duration;

impl Table {
    pub(crate) fn inspect(&self, key: &Key, now: Now) -> KeyState {
        self.keys.get(key).map_or_else(
            || KeyState {
                key: key.clone(),
                high_water: None,
                holder: None,
                blocked_for: None,
            },
            |row| row.state(key, now),
        )
    }

    pub(crate) fn key_page(
        &self,
        prefix: &str,
        after: Option<&Key>,
        limit: usize,
        now: Now,
    ) -> Vec<KeyState> {
        let from: Bound<&str> = match after {
            Some(after) => Bound::Excluded(after.as_str()),
            None => Bound::Included(prefix),
        };
        self.keys
            .range::<str, _>((from, Bound::Unbounded))
            .take_while(|(key, _)| key.as_str().starts_with(prefix))
            .take(limit)
            .map(|(key, row)| row.state(key, now))
            .collect()
    }

    /// A page of items with their places, for the next page.
    pub(crate) fn item_page(
        &self,
        dead: bool,
        after: Option<u64>,
        limit: usize,
        now: Now,
        left: Left<'_>,
    ) -> Vec<(u64, ItemState)> {
        let places: &BTreeMap<u64, ItemId> = if dead { &self.dead } else { &self.living };
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        places
            .range((from, Bound::Unbounded))
            .take(limit)
            .filter_map(|(place, id)| {
                Some((*place, self.item_state(self.items.get(id)?, now, left)))
            })
            .collect()
    }

    /// The live claim of an item, and how long it lasts.
    fn claim_of(&self, item: &Item, now: Now, left: Left<'_>) -> Option<(&Grant, Duration)> {
        let lane = item.lane();
        let grant = self.row(&lane)?.grant.as_ref()?;
        if grant.item != item.new.id || !grant.is_live(now) {
            return None;
        }
        let left = left(&lane, grant);
        (!left.is_zero()).then_some((grant, left))
    }

    fn item_state(&self, item: &Item, now: Now, left: Left<'_>) -> ItemState {
        let phase = match (&item.dead, self.claim_of(item, now, left)) {
            (Some(reason), _) => Phase::Dead(reason.clone()),
            (None, Some((grant, left))) => Phase::Claimed(Holder {
                remaining: left,
                ..grant.holder(now)
            }),
            (None, None) if item.visible_us > now.us => {
                Phase::Delayed(Duration::from_micros(item.visible_us - now.us))
            }
            (None, None) => Phase::Ready,
        };
        ItemState {
            id: item.new.id,
            group: item.new.group.clone(),
            dedup: item.new.dedup.clone(),
            attempts: item.attempts,
            age: Duration::from_micros(now.us.saturating_sub(item.put_us)),
            bytes: item.new.body.len(),
            phase,
            last_error: item.last_error.clone(),
        }
    }

    pub(crate) fn depth(&self, now: Now, left: Left<'_>) -> Depth {
        let mut depth = Depth::default();
        for item in self.items.values() {
            if item.dead.is_some() {
                depth.dead += 1;
                continue;
            }
            let age = Duration::from_micros(now.us.saturating_sub(item.put_us));
            depth.oldest = depth.oldest.max(Some(age));
            if self.claim_of(item, now, left).is_some() {
                depth.in_flight += 1;
            } else if item.visible_us > now.us {
                depth.delayed += 1;
            } else {
                depth.ready += 1;
            }
        }
        depth
    }
}
