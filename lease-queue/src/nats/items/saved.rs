//! The state in pieces, for a snapshot: the same state gives the same bytes.
//!
//! What follows from the rest is not saved but made anew: the order in which lanes
//! become ready, what each owner has, which deduplication keys are in use.

use std::collections::BTreeMap;

use bytes::Bytes;
use lease_core::{Label, Owner, RefusedReason, Token};
use serde::{Deserialize, Serialize};
use serde_json::value::to_raw_value;

use super::cutter::{Cutter, Pieces};
use super::machine::Queue;
use super::text::{AsText, as_text};
use super::wire::{WireClaim, WireLane, key, micros, text};
use crate::item::{ItemId, NewItem};
use crate::name::Lane;
use crate::table::lane::{Grant, Row, Standing, Term};
use crate::table::{Item, Table};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Piece {
    /// The place of the next item.
    Next(u64),
    Items(Vec<SavedItem>),
    Lanes(Vec<SavedLane>),
    /// Owner, whether it was revoked, until.
    Tombstones(Vec<(AsText<Owner>, bool, u64)>),
    Settled(Vec<(WireClaim, u64)>),
    /// Item, token, until.
    Completed(Vec<(AsText<ItemId>, u64, u64)>),
    /// Deduplication key, item, until.
    Dedup(Vec<(String, AsText<ItemId>, u64)>),
}

/// Its payload is among the piece's.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedItem {
    #[serde(with = "as_text")]
    id: ItemId,
    group: Option<String>,
    dedup: Option<String>,
    delay_us: u64,
    place: u64,
    put_us: u64,
    visible_us: u64,
    attempts: u32,
    dead: Option<String>,
    error: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedLane {
    lane: WireLane,
    mark: Option<u64>,
    free_us: u64,
    grant: Option<SavedGrant>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedGrant {
    #[serde(with = "as_text")]
    item: ItemId,
    #[serde(with = "as_text")]
    owner: Owner,
    token: u64,
    label: String,
    granted_us: u64,
    expires_us: u64,
    standing: SavedStanding,
    /// Revision, and how long it lasts.
    term: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SavedStanding {
    Granted,
    Released,
    Revoked,
}

/// The size of an entry without texts of people's.
const ENTRY: usize = 256;

/// `None` only for what is never in this state: a key's lane.
pub(super) fn save(table: &Table) -> Option<Pieces> {
    let next = to_raw_value(&Piece::Next(table.next_place)).ok()?;
    let mut pieces = vec![(next, Vec::new())];
    let mut items = Cutter::new(Piece::Items);
    for id in table.living.values().chain(table.dead.values()) {
        let item = table.items.get(id)?;
        let saved = SavedItem::of(item);
        let words = saved.dead.as_ref().map_or(0, String::len);
        let words = words + saved.error.as_ref().map_or(0, String::len);
        let names = saved.group.as_ref().map_or(0, String::len);
        let names = names + saved.dedup.as_ref().map_or(0, String::len);
        items.add(saved, Some(item.new.body.clone()), ENTRY + words + names)?;
    }
    pieces.extend(items.end()?);
    let mut lanes = Cutter::new(Piece::Lanes);
    let sorted: BTreeMap<&Lane, &Row> = table.lanes.iter().collect();
    for (lane, row) in sorted {
        lanes.add(SavedLane::of(lane, row)?, None, 4 * ENTRY)?;
    }
    pieces.extend(lanes.end()?);
    let mut tombstones = Cutter::new(Piece::Tombstones);
    for (owner, reason, until_us) in table.tombstones.iter() {
        let revoked = *reason == RefusedReason::Revoked;
        tombstones.add((AsText(*owner), revoked, until_us), None, ENTRY / 2)?;
    }
    pieces.extend(tombstones.end()?);
    let mut settled = Cutter::new(Piece::Settled);
    for (claim, (), until_us) in table.settled.iter() {
        settled.add((WireClaim::of(claim)?, until_us), None, 2 * ENTRY)?;
    }
    pieces.extend(settled.end()?);
    let mut completed = Cutter::new(Piece::Completed);
    for (item, token, until_us) in table.completed.iter() {
        let entry = (AsText(*item), token.get(), until_us);
        completed.add(entry, None, ENTRY / 2)?;
    }
    pieces.extend(completed.end()?);
    let mut dedup = Cutter::new(Piece::Dedup);
    for (key, item, until_us) in table.dedup_past.iter() {
        let entry = (key.as_str().to_owned(), AsText(*item), until_us);
        dedup.add(entry, None, ENTRY + key.as_str().len())?;
    }
    pieces.extend(dedup.end()?);
    Some(pieces)
}

/// `None` for what [`save`] has not written.
pub(super) fn load(pieces: Pieces, queue: &mut Queue) -> Option<()> {
    let table = &mut queue.table;
    let mut next_place = None;
    for (json, bodies) in pieces {
        let mut bodies = bodies.into_iter();
        match serde_json::from_str(json.get()).ok()? {
            Piece::Next(place) => next_place = Some(place),
            Piece::Items(items) => {
                for item in items {
                    place(table, item.read(bodies.next()?)?);
                }
            }
            Piece::Lanes(lanes) => {
                for lane in lanes {
                    lane.read(table)?;
                }
            }
            Piece::Tombstones(owners) => {
                for (AsText(owner), revoked, until_us) in owners {
                    let reason = match revoked {
                        true => RefusedReason::Revoked,
                        false => RefusedReason::Abandoned,
                    };
                    table.tombstones.put(owner, reason, 0, until_us);
                }
            }
            Piece::Settled(claims) => {
                for (claim, until_us) in claims {
                    table.settled.put(claim.read()?, (), 0, until_us);
                }
            }
            Piece::Completed(items) => {
                for (AsText(item), token, until_us) in items {
                    let token = Token::new(token).ok()?;
                    table.completed.put(item, token, 0, until_us);
                }
            }
            Piece::Dedup(keys) => {
                for (text, AsText(of), until_us) in keys {
                    let key = key(Some(text))??;
                    table.dedup_past.put(key, of, 0, until_us);
                }
            }
        }
        if bodies.next().is_some() {
            return None;
        }
    }
    table.next_place = next_place?;
    let lanes: Vec<Lane> = table.lanes.keys().cloned().collect();
    for lane in lanes {
        table.reindex(&lane);
        let standing = table.standing(&lane).map(|(_, term)| term);
        queue.sights.see(&lane, standing);
    }
    Some(())
}

/// Puts a saved item where it was; they come in the order of their places.
fn place(table: &mut Table, item: Item) {
    let (id, place) = (item.new.id, item.place);
    table.bytes += item.new.body.len() as u64;
    if let Some(key) = &item.new.dedup {
        table.dedup.insert(key.clone(), id);
    }
    match item.dead {
        Some(_) => {
            table.dead.insert(place, id);
        }
        None => {
            table.living.insert(place, id);
            table.row_or_new(&item.lane()).items.push_back(id);
        }
    }
    table.items.insert(id, item);
}

impl SavedItem {
    fn of(item: &Item) -> Self {
        Self {
            id: item.new.id,
            group: text(item.new.group.as_ref()),
            dedup: text(item.new.dedup.as_ref()),
            delay_us: micros(item.new.delay),
            place: item.place,
            put_us: item.put_us,
            visible_us: item.visible_us,
            attempts: item.attempts,
            dead: item.dead.clone(),
            error: item.last_error.clone(),
        }
    }

    fn read(self, body: Bytes) -> Option<Item> {
        Some(Item {
            new: NewItem {
                id: self.id,
                body,
                group: key(self.group)?,
                dedup: key(self.dedup)?,
                delay: std::time::Duration::from_micros(self.delay_us),
            },
            place: self.place,
            put_us: self.put_us,
            visible_us: self.visible_us,
            attempts: self.attempts,
            dead: self.dead,
            last_error: self.error,
        })
    }
}

impl SavedLane {
    fn of(lane: &Lane, row: &Row) -> Option<Self> {
        Some(Self {
            lane: WireLane::of(lane)?,
            mark: row.mark.map(Token::get),
            free_us: row.free_us,
            grant: row.grant.as_ref().map(SavedGrant::of),
        })
    }

    fn read(self, table: &mut Table) -> Option<()> {
        let lane = self.lane.read()?;
        let mark = self.mark.map(Token::new).transpose().ok()?;
        let grant = match self.grant {
            None => None,
            Some(grant) => Some(grant.read()?),
        };
        if let Some(grant) = grant.as_ref().filter(|g| g.standing != Standing::Released) {
            let lanes = table.owned.entry(grant.owner).or_default();
            lanes.insert(lane.clone());
        }
        let row = table.row_or_new(&lane);
        row.mark = mark;
        row.free_us = self.free_us;
        row.grant = grant;
        Some(())
    }
}

impl SavedGrant {
    fn of(grant: &Grant) -> Self {
        Self {
            item: grant.item,
            owner: grant.owner,
            token: grant.token.get(),
            label: grant.label.as_str().to_owned(),
            granted_us: grant.granted_us,
            expires_us: grant.expires_us,
            standing: match grant.standing {
                Standing::Granted => SavedStanding::Granted,
                Standing::Released => SavedStanding::Released,
                Standing::Revoked => SavedStanding::Revoked,
            },
            term: grant.term.map(|term| (term.revision, term.lasts_us)),
        }
    }

    fn read(self) -> Option<Grant> {
        Some(Grant {
            item: self.item,
            owner: self.owner,
            token: Token::new(self.token).ok()?,
            label: Label::new(&self.label).ok()?,
            granted_us: self.granted_us,
            expires_us: self.expires_us,
            standing: match self.standing {
                SavedStanding::Granted => Standing::Granted,
                SavedStanding::Released => Standing::Released,
                SavedStanding::Revoked => Standing::Revoked,
            },
            term: self
                .term
                .map(|(revision, lasts_us)| Term { revision, lasts_us }),
        })
    }
}
