//! One queue as a plain table: no lock, no clock, no waiting.

mod claim;
mod fading;
pub(crate) mod lane;
mod line;
mod look;
mod settle;
#[cfg(feature = "nats")]
mod told;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem;

use lease_core::{FenceWhen, Key, Owner, RefusedReason, TOMBSTONE_RETENTION, Token};

use crate::item::{ClaimRef, ItemId, NewItem};
use crate::name::Lane;
use crate::rules::QueueRules;
use crate::store::Added;
use crate::table::fading::Fading;
use crate::table::lane::{Now, Row, Standing};

/// An item that is in the queue.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) new: NewItem,
    /// Its place among all, from the first put on.
    pub(crate) place: u64,
    pub(crate) put_us: u64,
    pub(crate) visible_us: u64,
    pub(crate) attempts: u32,
    pub(crate) dead: Option<String>,
    pub(crate) last_error: Option<String>,
}

impl Item {
    pub(crate) fn lane(&self) -> Lane {
        match &self.new.group {
            Some(group) => Lane::Group(group.clone()),
            None => Lane::Item(self.new.id),
        }
    }
}

/// What those who wait are to be told of.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    pub(crate) queue: bool,
    pub(crate) keys: Vec<Key>,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) rules: QueueRules,
    pub(crate) items: HashMap<ItemId, Item>,
    /// Those that are not dead, the oldest first; and those that are.
    pub(crate) living: BTreeMap<u64, ItemId>,
    pub(crate) dead: BTreeMap<u64, ItemId>,
    pub(crate) next_place: u64,
    /// Of the payloads of all that are in the queue.
    pub(crate) bytes: u64,
    /// Groups, and items without one.
    pub(crate) lanes: HashMap<Lane, Row>,
    pub(crate) keys: BTreeMap<Key, Row>,
    /// Lanes with something to claim, by when that may be claimed.
    pub(crate) ready: BTreeSet<(u64, u64, Lane)>,
    pub(crate) owned: HashMap<Owner, HashSet<Lane>>,
    pub(crate) dedup: HashMap<Key, ItemId>,
    pub(crate) dedup_past: Fading<Key, ItemId>,
    pub(crate) completed: Fading<ItemId, Token>,
    pub(crate) settled: Fading<ClaimRef, ()>,
    pub(crate) tombstones: Fading<Owner, RefusedReason>,
    hints: Hints,
}

impl Table {
    pub(crate) fn new(rules: QueueRules) -> Self {
        Self {
            rules,
            items: HashMap::new(),
            living: BTreeMap::new(),
            dead: BTreeMap::new(),
            next_place: 0,
            bytes: 0,
            lanes: HashMap::new(),
            keys: BTreeMap::new(),
            ready: BTreeSet::new(),
            owned: HashMap::new(),
            dedup: HashMap::new(),
            dedup_past: Fading::new(),
            completed: Fading::new(),
            settled: Fading::new(),
            tombstones: Fading::new(),
            hints: Hints::default(),
        }
    }

    pub(crate) fn hints(&mut self) -> Hints {
        mem::take(&mut self.hints)
    }

    pub(crate) fn row_mut(&mut self, lane: &Lane) -> Option<&mut Row> {
        match lane {
            Lane::Key(key) => self.keys.get_mut(key),
            _ => self.lanes.get_mut(lane),
        }
    }

    pub(crate) fn row(&self, lane: &Lane) -> Option<&Row> {
        match lane {
            Lane::Key(key) => self.keys.get(key),
            _ => self.lanes.get(lane),
        }
    }

    pub(crate) fn row_or_new(&mut self, lane: &Lane) -> &mut Row {
        match lane {
            Lane::Key(key) => self.keys.entry(key.clone()).or_default(),
            _ => self.lanes.entry(lane.clone()).or_default(),
        }
    }

    pub(crate) fn put(&mut self, new: &NewItem, now: Now) -> Added {
        if self.knows(new.id, now) {
            return Added::Added;
        }
        if let Some(key) = &new.dedup {
            let of = self.dedup.get(key);
            if let Some(of) = of.or_else(|| self.dedup_past.get(key, now.us)) {
                return Added::Duplicate { of: *of };
            }
            self.dedup.insert(key.clone(), new.id);
        }
        let item = Item {
            new: new.clone(),
            place: 0,
            put_us: now.us,
            visible_us: now.after(new.delay),
            attempts: 0,
            dead: None,
            last_error: None,
        };
        self.bytes += new.body.len() as u64;
        self.items.insert(new.id, item);
        self.line_up(new.id);
        Added::Added
    }

    /// Whether the item is in the queue, or was completed a short time ago.
    pub(crate) fn knows(&self, item: ItemId, now: Now) -> bool {
        let completed = self.rules.completed_known && self.completed.get(&item, now.us).is_some();
        completed || self.items.contains_key(&item)
    }

    /// Puts an item at the end of its lane.
    pub(crate) fn line_up(&mut self, id: ItemId) {
        let place = self.next_place;
        self.next_place += 1;
        let Some(item) = self.items.get_mut(&id) else {
            return;
        };
        item.place = place;
        let lane = item.lane();
        self.living.insert(place, id);
        self.row_or_new(&lane).items.push_back(id);
        self.hint(&lane);
        self.reindex(&lane);
    }

    pub(crate) fn hint(&mut self, lane: &Lane) {
        match lane {
            Lane::Key(key) => self.hints.keys.push(key.clone()),
            _ => self.hints.queue = true,
        }
    }

    /// Notes from when on the lane's head may be claimed.
    pub(crate) fn reindex(&mut self, lane: &Lane) {
        let Some(row) = self.lanes.get_mut(lane) else {
            return;
        };
        if let Some((at_us, place)) = row.place.take() {
            self.ready.remove(&(at_us, place, lane.clone()));
        }
        let head = row.items.front().and_then(|head| self.items.get(head));
        if let Some(head) = head {
            let at_us = head.visible_us.max(row.unblocked_us());
            row.place = Some((at_us, head.place));
            self.ready.insert((at_us, head.place, lane.clone()));
        }
    }

    /// Ends the lane's grant before its time.
    pub(crate) fn free(&mut self, lane: &Lane, now: Now) {
        let Some(row) = self.row_mut(lane) else {
            return;
        };
        row.free_us = now.us;
        let owner = row.grant.as_mut().map(|grant| {
            grant.standing = Standing::Released;
            grant.term = None;
            grant.owner
        });
        let forgets = !self.rules.mark_stays;
        if forgets && let Some(row) = self.row_mut(lane) {
            row.mark = None;
        }
        if let Some(owner) = owner {
            self.disown(owner, lane);
        }
        self.hint(lane);
        self.reindex(lane);
    }

    pub(crate) fn disown(&mut self, owner: Owner, lane: &Lane) {
        if let Some(lanes) = self.owned.get_mut(&owner) {
            lanes.remove(lane);
            if lanes.is_empty() {
                self.owned.remove(&owner);
            }
        }
    }

    pub(crate) fn abandon(&mut self, key: Option<&Key>, owner: Owner, now: Now) {
        if self.rules.tombstones {
            let until_us = now.after(TOMBSTONE_RETENTION);
            self.tombstones
                .put(owner, RefusedReason::Abandoned, now.us, until_us);
        }
        if let Some(key) = key {
            self.leave_line(key, owner, now);
        }
        let lanes = self.owned.get(&owner).into_iter().flatten();
        let meant = |lane: &&Lane| match (key, lane) {
            (None, _) => true,
            (Some(key), Lane::Key(of)) => key == of,
            (Some(_), _) => false,
        };
        let lanes: Vec<Lane> = lanes.filter(meant).cloned().collect();
        for lane in lanes {
            let grant = self.row(&lane).and_then(|row| row.grant.as_ref());
            let own = grant.filter(|g| g.owner == owner && g.blocks(now));
            let Some(item) = own.map(|grant| grant.item) else {
                continue;
            };
            if self.rules.abandon_uncounted
                && let Some(item) = self.items.get_mut(&item)
            {
                item.attempts = item.attempts.saturating_sub(1);
            }
            self.free(&lane, now);
        }
    }

    /// Whoever gives up makes room for those behind it.
    fn leave_line(&mut self, key: &Key, owner: Owner, now: Now) {
        if !self.rules.abandon_leaves_line {
            return;
        }
        let left = self.keys.get_mut(key).is_some_and(|row| {
            row.line.leave(owner) && !row.grant.as_ref().is_some_and(|grant| grant.blocks(now))
        });
        if left {
            self.hint(&Lane::Key(key.clone()));
        }
    }

    pub(crate) fn fence(
        &mut self,
        lane: &Lane,
        at_least: Token,
        when: FenceWhen,
        now: Now,
    ) -> Token {
        let rules = self.rules;
        let row = self.row_or_new(lane);
        let mark = row.mark.map_or(at_least, |mark| mark.max(at_least));
        row.mark = Some(mark);
        let grant = row.grant.as_mut();
        let Some(grant) = grant.filter(|g| g.blocks(now) && g.token < mark && rules.fence_revokes)
        else {
            return mark;
        };
        grant.standing = Standing::Revoked;
        let (owner, until_us) = (grant.owner, grant.expires_us);
        if when == FenceWhen::Immediately {
            grant.end(now);
            self.hint(lane);
        }
        let from = Now {
            us: until_us.max(now.us),
            ..now
        };
        let until_us = from.after(TOMBSTONE_RETENTION);
        self.tombstones
            .put(owner, RefusedReason::Revoked, now.us, until_us);
        self.reindex(lane);
        mark
    }
}
