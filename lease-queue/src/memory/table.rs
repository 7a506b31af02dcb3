//! One queue as a plain table: no lock, no clock, no waiting.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem;

use lease_core::{FenceWhen, Key, Owner, RefusedReason, TOMBSTONE_RETENTION, Token};

use crate::item::{ClaimRef, ItemId, NewItem};
use crate::memory::fading::Fading;
use crate::memory::lane::{Now, Row, Standing};
use crate::name::Lane;
use crate::rules::QueueRules;
use crate::store::Added;

/// An item that is in the queue.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) new: NewItem,
    /// Its place among all, from the first put on.
    pub(super) place: u64,
    pub(super) put_us: u64,
    pub(super) visible_us: u64,
    pub(super) attempts: u32,
    pub(super) dead: Option<String>,
    pub(super) last_error: Option<String>,
}

impl Item {
    pub(super) fn lane(&self) -> Lane {
        match &self.new.group {
            Some(group) => Lane::Group(group.clone()),
            None => Lane::Item(self.new.id),
        }
    }
}

/// What those who wait are to be told of.
#[derive(Debug, Default)]
pub(super) struct Hints {
    pub(super) queue: bool,
    pub(super) keys: Vec<Key>,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) rules: QueueRules,
    pub(super) items: HashMap<ItemId, Item>,
    /// Those that are not dead, the oldest first; and those that are.
    pub(super) living: BTreeMap<u64, ItemId>,
    pub(super) dead: BTreeMap<u64, ItemId>,
    pub(super) next_place: u64,
    /// Groups, and items without one.
    pub(super) lanes: HashMap<Lane, Row>,
    pub(super) keys: BTreeMap<Key, Row>,
    /// Lanes with something to claim, by when that may be claimed.
    pub(super) ready: BTreeSet<(u64, u64, Lane)>,
    pub(super) owned: HashMap<Owner, HashSet<Lane>>,
    pub(super) dedup: HashMap<Key, ItemId>,
    pub(super) dedup_past: Fading<Key, ItemId>,
    pub(super) completed: Fading<ItemId, Token>,
    pub(super) settled: Fading<ClaimRef, ()>,
    pub(super) tombstones: Fading<Owner, RefusedReason>,
    hints: Hints,
}

impl Table {
    pub(super) fn new(rules: QueueRules) -> Self {
        Self {
            rules,
            items: HashMap::new(),
            living: BTreeMap::new(),
            dead: BTreeMap::new(),
            next_place: 0,
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

    pub(super) fn hints(&mut self) -> Hints {
        mem::take(&mut self.hints)
    }

    pub(super) fn row_mut(&mut self, lane: &Lane) -> Option<&mut Row> {
        match lane {
            Lane::Key(key) => self.keys.get_mut(key),
            _ => self.lanes.get_mut(lane),
        }
    }

    pub(super) fn row(&self, lane: &Lane) -> Option<&Row> {
        match lane {
            Lane::Key(key) => self.keys.get(key),
            _ => self.lanes.get(lane),
        }
    }

    pub(super) fn row_or_new(&mut self, lane: &Lane) -> &mut Row {
        match lane {
            Lane::Key(key) => self.keys.entry(key.clone()).or_default(),
            _ => self.lanes.entry(lane.clone()).or_default(),
        }
    }

    pub(super) fn put(&mut self, new: &NewItem, now: Now) -> Added {
        let known = self.rules.completed_known && self.completed.get(&new.id, now.us).is_some();
        if known || self.items.contains_key(&new.id) {
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
        self.items.insert(new.id, item);
        self.line_up(new.id);
        Added::Added
    }

    /// Puts an item at the end of its lane.
    pub(super) fn line_up(&mut self, id: ItemId) {
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

    pub(super) fn hint(&mut self, lane: &Lane) {
        match lane {
            Lane::Key(key) => self.hints.keys.push(key.clone()),
            _ => self.hints.queue = true,
        }
    }

    /// Notes from when on the lane's head may be claimed.
    pub(super) fn reindex(&mut self, lane: &Lane) {
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
    pub(super) fn free(&mut self, lane: &Lane, now: Now) {
        let Some(row) = self.row_mut(lane) else {
            return;
        };
        row.free_us = now.us;
        let owner = row.grant.as_mut().map(|grant| {
            grant.standing = Standing::Released;
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

    pub(super) fn disown(&mut self, owner: Owner, lane: &Lane) {
        if let Some(lanes) = self.owned.get_mut(&owner) {
            lanes.remove(lane);
            if lanes.is_empty() {
                self.owned.remove(&owner);
            }
        }
    }

    pub(super) fn abandon(&mut self, key: Option<&Key>, owner: Owner, now: Now) {
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

    pub(super) fn fence(
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
            grant.expires_us = now.us;
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
