//! What happened, in true time, and what of it the contract forbids.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use lease_core::{Clock, Key, KeyState, Moment, Owner, Token};

use crate::clock::TrueClock;

#[derive(Debug)]
pub(crate) struct History {
    truth: Arc<TrueClock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<String>,
    violations: Vec<String>,
    /// The highest token that the store granted, and to whom.
    granted: BTreeMap<Key, (Token, Owner)>,
    /// The highest token that an acquire handed to its caller.
    handed_out: BTreeMap<Key, Token>,
    /// The highest mark that a fence has confirmed.
    fenced: BTreeMap<Key, Token>,
    /// Whose release could not be confirmed: its grant waits out its TTL.
    unreleased: BTreeSet<Owner>,
    /// Nothing may be granted any more.
    over: bool,
}

impl History {
    pub(crate) fn new(truth: Arc<TrueClock>) -> Self {
        Self {
            truth,
            state: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.truth.now()
    }

    fn with(&self, f: impl FnOnce(&mut State, Moment)) {
        f(&mut self.state.lock().unwrap(), self.truth.now());
    }

    pub(crate) fn line(&self, who: &str, what: &str) {
        self.with(|state, now| state.line(now, who, what));
    }

    /// The store granted something, new or not.
    pub(crate) fn store_granted(&self, key: &Key, owner: Owner, token: Token) {
        self.with(|state, now| {
            match state.granted.get(key).copied() {
                Some((highest, last)) if token < highest || (token == highest && last != owner) => {
                    let what = format!("{key}: token {token} granted after {highest}");
                    state.violation(now, "tokens do not rise at the store", &what);
                }
                Some((highest, _)) if token == highest => return,
                _ => {}
            }
            if state.over {
                let what = format!("{key}: {owner:?} got {token} after the fleet had shut down");
                state.violation(now, "an orphan", &what);
            }
            if state.fenced.get(key).is_some_and(|mark| token <= *mark) {
                let what = format!("{key}: token {token} granted below a fence");
                state.violation(now, "a fence does not hold", &what);
            }
            state.line(
                now,
                "store",
                &format!("granted-at-store {key} {owner:?} {token}"),
            );
            state.granted.insert(key.clone(), (token, owner));
        });
    }

    /// An acquire returned a lease to its caller.
    pub(crate) fn handed_out(&self, who: &str, key: &Key, token: Token) {
        self.with(|state, now| {
            state.line(now, who, &format!("handed-out {key} {token}"));
            if let Some(highest) = state.handed_out.get(key)
                && token <= *highest
            {
                let what = format!("{key}: {token} after {highest}");
                state.violation(now, "tokens are handed out backwards (1l)", &what);
            }
            let highest = state.handed_out.entry(key.clone()).or_insert(token);
            *highest = token.max(*highest);
        });
    }

    /// A holder's check said yes, and it wrote at this very moment.
    pub(crate) fn wrote(&self, who: &str, key: &Key, owner: Owner, token: Token) {
        self.with(|state, now| {
            state.line(now, who, &format!("wrote {key} {token}"));
            match state.granted.get(key) {
                Some((highest, holder)) if *holder == owner && *highest == token => {}
                other => {
                    let what = format!("{key}: {token} wrote while the store has {other:?}");
                    state.violation(now, "two holders", &what);
                }
            }
        });
    }

    pub(crate) fn fenced(&self, key: &Key, mark: Token) {
        self.with(|state, now| {
            state.line(now, "operator", &format!("fenced {key} {mark}"));
            let highest = state.fenced.entry(key.clone()).or_insert(mark);
            *highest = mark.max(*highest);
        });
    }

    pub(crate) fn unreleased(&self, owner: Owner) {
        self.with(|state, _| {
            state.unreleased.insert(owner);
        });
    }

    /// Every client has released what it held.
    pub(crate) fn not_held_any_more(&self, seen: &KeyState) {
        self.with(|state, now| {
            let holder = state.granted.get(&seen.key).map(|(_, owner)| *owner);
            let excused = holder.is_some_and(|owner| state.unreleased.contains(&owner));
            if seen.holder.is_some() && !excused {
                state.violation(now, "a key stays held", &format!("{holder:?}: {seen:?}"));
            }
        });
    }

    pub(crate) fn check(&self, holds: bool, rule: &str, what: impl FnOnce() -> String) {
        if !holds {
            self.with(|state, now| state.violation(now, rule, &what()));
        }
    }

    pub(crate) fn fleet_is_over(&self) {
        self.with(|state, _| state.over = true);
    }

    pub(crate) fn take(&self) -> (Vec<String>, Vec<String>) {
        let mut state = self.state.lock().unwrap();
        (
            std::mem::take(&mut state.lines),
            std::mem::take(&mut state.violations),
        )
    }
}

impl State {
    fn line(&mut self, now: Moment, who: &str, what: &str) {
        let ms = now.as_nanos() as f64 / 1e6;
        self.lines.push(format!("{ms:.3} {who} {what}"));
    }

    fn violation(&mut self, now: Moment, rule: &str, what: &str) {
        self.line(now, "VIOLATION", &format!("{rule}: {what}"));
        let ms = now.as_nanos() as f64 / 1e6;
        self.violations
            .push(format!("{rule}, at {ms:.3} ms: {what}"));
    }
}
