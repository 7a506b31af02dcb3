//! Those who wait for a key, in line; as `WaiterOrder::Fifo` says.

use std::time::Duration;

use lease_core::{Holder, Label, Owner, RefusedReason, Token, WAITER_TURN, place_lasts, turn_in};

use crate::rules::QueueRules;
use crate::store::Answer;
use crate::table::lane::{Asker, Now};

/// A place.
#[derive(Debug)]
struct Place {
    owner: Owner,
    label: Label,
    since_us: u64,
    until_us: u64,
    /// Somebody behind it was granted the key since it last asked.
    missed: bool,
}

/// The line of one key: places in the order in which they were taken.
#[derive(Debug, Default)]
pub(crate) struct Line(Vec<Place>);

impl Line {
    /// Takes a place, or makes the owner's own last longer.
    pub(crate) fn wait(&mut self, asker: Asker<'_>, waits: Duration, rules: QueueRules, now: Now) {
        self.fade(rules, now);
        let until_us = now.after(place_lasts(waits));
        if !rules.place_kept {
            self.leave(asker.owner);
        }
        match self.0.iter_mut().find(|place| place.owner == asker.owner) {
            Some(own) => (own.until_us, own.missed) = (until_us, false),
            None => self.0.push(Place {
                owner: asker.owner,
                label: asker.label.clone(),
                since_us: now.us,
                until_us,
                missed: false,
            }),
        }
    }

    /// Its owner is granted the key, out of its place or without one: whoever was ahead
    /// has missed its turn.
    pub(crate) fn is_served(&mut self, owner: Owner, rules: QueueRules) {
        let own = self.0.iter().position(|place| place.owner == owner);
        let ahead = own.unwrap_or(self.0.len());
        let ahead = self.0.iter_mut().take(ahead);
        ahead.for_each(|place| place.missed = rules.missed_not_awaited);
        self.leave(owner);
    }

    /// Gives a place up; whether there was one.
    pub(crate) fn leave(&mut self, owner: Owner) -> bool {
        let before = self.0.len();
        self.0.retain(|place| place.owner != owner);
        self.0.len() < before
    }

    fn fade(&mut self, rules: QueueRules, now: Now) {
        if rules.places_fade {
            self.0.retain(|place| now.us < place.until_us);
        }
    }

    /// Of a key that has been free since `free_us`: what is answered to somebody whose
    /// turn it is not. `mark` is the key's, as a token for people.
    pub(crate) fn keeps_out(
        &mut self,
        asker: Asker<'_>,
        waits: Option<Duration>,
        (free_us, mark): (u64, Option<Token>),
        rules: QueueRules,
        now: Now,
    ) -> Option<Answer> {
        self.fade(rules, now);
        if self.0.is_empty() || !rules.line_counts {
            return None;
        }
        if let Some(waits) = waits {
            self.wait(asker, waits, rules, now);
        } else if !rules.tries_come_last {
            return None;
        }
        let own = self.0.iter().position(|place| place.owner == asker.owner);
        let before = self.0.iter().take(own.unwrap_or(self.0.len()));
        let ahead = before.filter(|place| !place.missed).count() as u64;
        let free_for = Duration::from_micros(now.us.saturating_sub(free_us));
        let mut remaining = turn_in(ahead, free_for);
        if !rules.turns_pass && ahead > 0 {
            remaining = remaining.max(WAITER_TURN);
        }
        if remaining.is_zero() {
            return None;
        }
        let first = self.0.iter().find(|place| !place.missed);
        match (waits, first, mark) {
            (None, Some(first), Some(token)) => Some(Answer::Held(Holder {
                label: first.label.clone(),
                token,
                age: Duration::from_micros(now.us.saturating_sub(first.since_us)),
                remaining,
            })),
            _ => Some(Answer::Refused(RefusedReason::InLine { ahead, remaining })),
        }
    }
}
