//! The store against the reference in memory: the same requests in the same
//! order have the same outcomes.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use futures_util::StreamExt;
use lease_core::{
    AcquireOutcome, AcquireRequest, FenceWhen, KeyState, LeaseBackend, MemoryStore, Owner,
    RenewRequest, Token, TokenRule,
};
use lease_sqlite::SqliteStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use support::*;

const KEYS: [&str; 2] = ["a", "b"];
/// Ahead of every clock, so that tokens follow from the requests alone.
const FLOOR: u64 = 1 << 51;
const LONG_MS: u64 = 600_000;

/// Times differ between two stores; everything else must not.
fn timeless(outcome: AcquireOutcome) -> AcquireOutcome {
    match outcome {
        AcquireOutcome::Held(mut holder) => {
            holder.age = Duration::ZERO;
            holder.remaining = Duration::ZERO;
            AcquireOutcome::Held(holder)
        }
        other => other,
    }
}

fn timeless_state(mut state: KeyState) -> KeyState {
    if let Some(holder) = &mut state.holder {
        holder.age = Duration::ZERO;
        holder.remaining = Duration::ZERO;
    }
    state.blocked_for = state.blocked_for.map(|_| Duration::ZERO);
    state
}

struct Pair {
    ours: SqliteStore,
    reference: MemoryStore,
    rng: StdRng,
    owners: Vec<Owner>,
    tokens: Vec<Token>,
    trace: Vec<String>,
}

impl Pair {
    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.rng.random_range(0..from.len())].clone()
    }

    fn some_token(&mut self) -> Token {
        let known = self.tokens.clone();
        let near = self.pick(&known).get() + self.rng.random_range(0..3);
        token(near - self.rng.random_range(0..2))
    }

    fn check<T: PartialEq + std::fmt::Debug>(&mut self, what: String, ours: T, reference: T) {
        self.trace.push(format!("{what} -> {reference:?}"));
        assert_eq!(ours, reference, "\n{}", self.trace.join("\n"));
    }

    async fn acquire(&mut self, name: &str, ttl: u64) {
        let owners = self.owners.clone();
        let rule = match self.rng.random_range(0..4) {
            0 => TokenRule::Exactly(self.some_token()),
            1 => TokenRule::Next {
                after: Some(self.some_token()),
            },
            _ => TokenRule::NEXT,
        };
        let request = AcquireRequest {
            owner: self.pick(&owners),
            rule,
            ..request(name, ttl)
        };
        let ours = timeless(self.ours.acquire(&request).await.unwrap());
        let reference = timeless(self.reference.acquire(&request).await.unwrap());
        if let AcquireOutcome::Granted(granted) = &reference {
            self.tokens.push(granted.token);
        }
        self.check(format!("{request:?}"), ours, reference);
    }

    /// Waits until what was granted for a short time is over in both.
    async fn settle(&mut self, name: &str) {
        let short = |state: &KeyState| {
            let live = state.holder.as_ref().map(|holder| holder.remaining);
            live.or(state.blocked_for)
                .is_some_and(|left| left < Duration::from_secs(60))
        };
        until(&self.ours, name, |state| !short(state)).await;
        while short(&self.reference.inspect(&key(name)).await.unwrap()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn step(&mut self) {
        let name = self.pick(&KEYS);
        let owners = self.owners.clone();
        let owner = self.pick(&owners);
        let token = self.some_token();
        match self.rng.random_range(0..20) {
            0..6 => self.acquire(name, LONG_MS).await,
            6 => {
                self.acquire(name, 50).await;
                self.settle(name).await;
            }
            7..10 => {
                let request = RenewRequest {
                    key: key(name),
                    owner,
                    token,
                    ttl: ttl_ms(LONG_MS),
                };
                let ours = self.ours.renew(&request).await.unwrap();
                let reference = self.reference.renew(&request).await.unwrap();
                self.check(format!("{request:?}"), ours, reference);
            }
            10..13 => {
                let ours = self.ours.release(&key(name), owner, token).await.unwrap();
                let reference = self.reference.release(&key(name), owner, token).await;
                let what = format!("release {name} {owner:?} {token:?}");
                self.check(what, ours, reference.unwrap());
            }
            13..15 => {
                self.ours.abandon(&key(name), owner).await.unwrap();
                self.reference.abandon(&key(name), owner).await.unwrap();
                self.trace.push(format!("abandon {name} {owner:?}"));
            }
            15..17 => {
                let when = self.pick(&[FenceWhen::AtExpiry, FenceWhen::Immediately]);
                let ours = self.ours.fence(&key(name), token, when).await.unwrap();
                let reference = self.reference.fence(&key(name), token, when).await.unwrap();
                self.tokens.push(reference);
                self.check(format!("fence {name} {token:?} {when:?}"), ours, reference);
            }
            17..19 => {
                let at = self.rng.random_range(0..self.owners.len());
                self.owners[at] = Owner::random().unwrap();
            }
            _ => {
                let all = |states: Vec<Result<KeyState, _>>| -> Vec<KeyState> {
                    let states = states
                        .into_iter()
                        .map(Result::<_, lease_core::StoreError>::unwrap);
                    states.map(timeless_state).collect()
                };
                let ours = all(self.ours.list("").collect().await);
                let reference = all(self.reference.list("").collect().await);
                self.check("list".to_owned(), ours, reference);
            }
        }
        let ours = self.ours.inspect(&key(name)).await.unwrap();
        let reference = self.reference.inspect(&key(name)).await.unwrap();
        let what = format!("inspect {name}");
        self.check(what, timeless_state(ours), timeless_state(reference));
    }
}

#[tokio::test]
async fn every_outcome_is_the_references() {
    for seed in 0..16 {
        let folder = Folder::new();
        let mut pair = Pair {
            ours: SqliteStore::open(folder.file("a.db")).await.unwrap(),
            reference: MemoryStore::new(),
            rng: StdRng::seed_from_u64(seed),
            owners: (0..3).map(|_| Owner::random().unwrap()).collect(),
            tokens: vec![token(FLOOR)],
            trace: vec![format!("seed {seed}")],
        };
        for name in KEYS {
            let (floor, when) = (token(FLOOR), FenceWhen::AtExpiry);
            pair.ours.fence(&key(name), floor, when).await.unwrap();
            pair.reference.fence(&key(name), floor, when).await.unwrap();
        }
        for _ in 0..250 {
            pair.step().await;
        }
    }
}
