//! Those who wait for a key, in line; as `WaiterOrder::Fifo` says.

use std::time::Duration;

use lease_core::{AcquireOutcome, Holder, Owner, RefusedReason, turn_in};

use super::place::{Place, has_room};
use super::record::Nonce;
use super::rules::{Ask, Step};
use super::sight::{Seen, View};

/// The places that last, as this client sees them, and how long it has seen each.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) places: Vec<Place>,
    seen: Vec<Seen>,
}

impl View {
    /// The line as it stands to this client. A place that it has seen unchanged for as
    /// long as it lasts is over, as a grant is.
    pub(super) fn line(&self) -> Line {
        let all = self.record.line.iter().zip(&self.places);
        let last = all.filter(|(place, seen)| seen.unchanged < place.lasts());
        let (places, seen) = last.map(|(place, seen)| (place.clone(), *seen)).unzip();
        Line { places, seen }
    }
}

impl Line {
    fn place_of(&self, owner: Owner) -> Option<usize> {
        self.places.iter().position(|place| place.owner == owner)
    }

    /// Takes a place, or makes the asker's own last longer, unless it lasts long enough;
    /// whether anything is to be written.
    pub(super) fn joins(&mut self, ask: &Ask<'_>, waits: Duration, nonce: Nonce) -> bool {
        let new = Place::new(ask.owner, ask.label, nonce, waits);
        let own = self.places.iter_mut().zip(&self.seen);
        match own.into_iter().find(|(own, _)| own.owner == ask.owner) {
            Some((own, seen)) => {
                let due = own.is_due(seen.unchanged, waits);
                if due {
                    *own = new;
                }
                due
            }
            None => {
                let room = has_room(&self.places, &new, ask.max_payload);
                if room {
                    self.places.push(new);
                }
                room
            }
        }
    }

    /// Its owner is granted the key, out of its place or without one: whoever was ahead
    /// has missed its turn.
    pub(super) fn is_served(&mut self, owner: Owner) {
        let ahead = self.place_of(owner).unwrap_or(self.places.len());
        let ahead = self.places.iter_mut().take(ahead);
        ahead.for_each(|place| place.missed = true);
        self.places.retain(|place| place.owner != owner);
    }
}

/// Of a free key: what becomes of somebody whose turn it is not.
pub(super) fn keeps_out(view: &View, ask: &Ask<'_>, nonce: Nonce) -> Option<Step<AcquireOutcome>> {
    let mut line = view.line();
    if line.places.is_empty() {
        return None;
    }
    let joins = ask.waits.is_some_and(|waits| line.joins(ask, waits, nonce));
    let own = line.place_of(ask.owner).unwrap_or(line.places.len());
    let before = line.places.iter().take(own);
    let ahead = before.filter(|place| !place.missed).count() as u64;
    let remaining = turn_in(ahead, view.free_for());
    if remaining.is_zero() {
        return None;
    }
    let in_line = AcquireOutcome::Refused(RefusedReason::InLine { ahead, remaining });
    let first = line.places.iter().zip(&line.seen);
    let first = first.into_iter().find(|(place, _)| !place.missed);
    let answer = match (ask.waits, first, view.record.mark) {
        (None, Some((first, seen)), Some(token)) => AcquireOutcome::Held(Holder {
            label: first.label.clone(),
            token,
            age: seen.waits,
            remaining,
        }),
        _ => in_line,
    };
    // Whoever does not live long never sees that all who wait are dead: the server tells
    // it. To take a place tells as well.
    let unsure = view.is_first;
    let record = Box::new(view.with(line.places));
    Some(match (joins, unsure) {
        (true, _) => Step::Join(record, answer),
        (_, true) => Step::Stamp(record, answer),
        _ => Step::Answer(answer),
    })
}

#[cfg(test)]
mod tests;
