//! What happened, in true time, and what of it is forbidden.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use lease_core::{Key, Token};
use tokio::time::Instant;

/// The longest TTL that anybody asks for.
pub(super) const MAX_TTL: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(super) struct History(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    violations: Vec<String>,
    handed_out: BTreeMap<Key, Token>,
    fenced: BTreeMap<Key, (Token, Option<Instant>)>,
    leases: usize,
    writes: usize,
}

impl History {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap())
    }

    /// The fence that stands before an acquisition begins.
    pub(super) fn floor(&self, key: &Key) -> Option<Token> {
        self.with(|state| state.fenced.get(key).map(|(mark, _)| *mark))
    }

    pub(super) fn handed_out(&self, key: &Key, token: Token, floor: Option<Token>) {
        self.with(|state| {
            state.leases += 1;
            let highest = state.handed_out.get(key).copied();
            if highest.is_some_and(|highest| token <= highest) {
                let what = format!("tokens do not rise: {key}: {token} after {highest:?}");
                state.violations.push(what);
            }
            if floor.is_some_and(|floor| token <= floor) {
                let what = format!("a fence does not hold: {key}: {token} below {floor:?}");
                state.violations.push(what);
            }
            state.handed_out.insert(key.clone(), token);
        });
    }

    /// A holder's check said yes at this very moment.
    pub(super) fn wrote(&self, key: &Key, token: Token) {
        self.with(|state| {
            state.writes += 1;
            let highest = state.handed_out.get(key).copied();
            if highest != Some(token) {
                let what = format!("two holders: {key}: {token} wrote beside {highest:?}");
                state.violations.push(what);
            }
            if let Some((mark, Some(since))) = state.fenced.get(key)
                && token < *mark
                && since.elapsed() > MAX_TTL
            {
                let what = format!("a fence does not hold: {key}: {token} lives on below {mark}");
                state.violations.push(what);
            }
        });
    }

    pub(super) fn fenced(&self, key: &Key, mark: Token) {
        self.with(|state| {
            let now = Some(Instant::now());
            state.fenced.insert(key.clone(), (mark, now));
        });
    }

    pub(super) fn check(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.with(|state| state.violations.push(what()));
        }
    }

    pub(super) fn take(&self) -> (Vec<String>, usize, usize) {
        self.with(|state| {
            (
                std::mem::take(&mut state.violations),
                state.leases,
                state.writes,
            )
        })
    }
}
