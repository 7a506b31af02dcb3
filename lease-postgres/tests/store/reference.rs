//! The store against the reference in memory: the same requests in the same
//! order have the same outcomes.

use std::fmt::Debug;
use std::time::Duration;

use futures_util::StreamExt;
use lease_core::{
    AcquireOutcome, AcquireRequest, FenceWhen, Holder, KeyState, LeaseBackend, LostCause,
    MemoryStore, Owner, RenewOutcome, RenewRequest, StoreError, Token, TokenRule, Ttl,
};
use lease_postgres::PostgresStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::{ask, key, options};

const KEYS: [&str; 2] = ["a", "{b}%'"];
const OWNERS: usize = 3;
/// Ahead of every clock, so that tokens follow from the requests alone.
const FLOOR: u64 = 1 << 51;
const LONG_MS: u64 = 600_000;
const STEPS: usize = 250;
const SEEDS: u64 = 5;

fn without_times(holder: &mut Holder) {
    holder.age = Duration::ZERO;
    holder.remaining = Duration::ZERO;
}

/// Times differ between two stores; everything else must not.
fn timeless(mut outcome: AcquireOutcome) -> AcquireOutcome {
    if let AcquireOutcome::Held(holder) = &mut outcome {
        without_times(holder);
    }
    outcome
}

fn timeless_state(mut state: KeyState) -> KeyState {
    if let Some(holder) = &mut state.holder {
        without_times(holder);
    }
    state.blocked_for = state.blocked_for.map(|_| Duration::ZERO);
    state
}

fn token(number: u64) -> Token {
    Token::new(number).unwrap()
}

/// In an order of its own.
async fn listed(store: &dyn LeaseBackend) -> Vec<KeyState> {
    let states: Vec<Result<KeyState, StoreError>> = store.list("").collect().await;
    let mut states: Vec<_> = states
        .into_iter()
        .map(|state| timeless_state(state.unwrap()))
        .collect();
    states.sort_by(|a, b| a.key.cmp(&b.key));
    states
}

struct Pair {
    ours: PostgresStore,
    reference: MemoryStore,
    random: StdRng,
    /// Of each key: an owner is of one acquisition, and so of one key.
    owners: [Vec<Owner>; KEYS.len()],
    tokens: Vec<Token>,
    trace: Vec<String>,
}

impl Pair {
    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.random.random_range(0..all.len())].clone()
    }

    /// One of the key's.
    fn owner(&mut self, name: &str) -> Owner {
        let at = KEYS.iter().position(|known| *known == name).unwrap();
        self.owners[at][self.random.random_range(0..OWNERS)]
    }

    fn near_token(&mut self) -> Token {
        let known = self.tokens[self.random.random_range(0..self.tokens.len())];
        token(known.get() + self.random.random_range(0..3) - self.random.random_range(0..2))
    }

    fn same<T: PartialEq + Debug>(&mut self, what: String, ours: T, reference: T) {
        self.trace.push(format!("{what} -> {reference:?}"));
        assert_eq!(ours, reference, "\n{}", self.trace.join("\n"));
    }

    async fn acquire(&mut self, name: &str, ttl_ms: u64) {
        let rule = match self.random.random_range(0..4) {
            0 => TokenRule::Exactly(self.near_token()),
            1 => TokenRule::Next {
                after: Some(self.near_token()),
            },
            _ => TokenRule::NEXT,
        };
        let owner = self.owner(name);
        let request = AcquireRequest {
            rule,
            ..ask(name, owner, Duration::from_millis(ttl_ms))
        };
        let ours = timeless(self.ours.acquire(&request).await.unwrap());
        let reference = timeless(self.reference.acquire(&request).await.unwrap());
        if let AcquireOutcome::Granted(granted) = &reference {
            self.tokens.push(granted.token);
        }
        self.same(format!("{request:?}"), ours, reference);
    }

    /// Waits until what was granted for a short time is over in both.
    async fn settle(&mut self, name: &str) {
        let short = |state: &KeyState| {
            let live = state.holder.as_ref().map(|holder| holder.remaining);
            live.or(state.blocked_for)
                .is_some_and(|left| left < Duration::from_secs(60))
        };
        while short(&self.ours.inspect(&key(name)).await.unwrap()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        while short(&self.reference.inspect(&key(name)).await.unwrap()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn renew(&mut self, name: &str) {
        let request = RenewRequest {
            key: key(name),
            owner: self.owner(name),
            token: self.near_token(),
            ttl: Ttl::new(Duration::from_millis(LONG_MS)).unwrap(),
        };
        let mut ours = self.ours.renew(&request).await.unwrap();
        let reference = self.reference.renew(&request).await.unwrap();
        // Of an owner that was abandoned before anybody had the key, the
        // reference does not say why.
        let unknown = RenewOutcome::Lost(LostCause::Unknown);
        if reference == unknown && ours == RenewOutcome::Lost(LostCause::Released) {
            ours = unknown;
        }
        self.same(format!("{request:?}"), ours, reference);
    }

    async fn release(&mut self, name: &str) {
        let (key, owner, token) = (key(name), self.owner(name), self.near_token());
        let ours = self.ours.release(&key, owner, token).await.unwrap();
        let reference = self.reference.release(&key, owner, token).await.unwrap();
        self.same(
            format!("release {name} {owner:?} {token:?}"),
            ours,
            reference,
        );
    }

    async fn abandon(&mut self, name: &str) {
        let (key, owner) = (key(name), self.owner(name));
        self.ours.abandon(&key, owner).await.unwrap();
        self.reference.abandon(&key, owner).await.unwrap();
        self.trace.push(format!("abandon {name} {owner:?}"));
    }

    async fn fence(&mut self, name: &str) {
        let (key, token) = (key(name), self.near_token());
        let when = self.one_of(&[FenceWhen::AtExpiry, FenceWhen::Immediately]);
        let ours = self.ours.fence(&key, token, when).await.unwrap();
        let reference = self.reference.fence(&key, token, when).await.unwrap();
        self.tokens.push(reference);
        self.same(format!("fence {name} {token:?} {when:?}"), ours, reference);
    }

    async fn step(&mut self) {
        let name = self.one_of(&KEYS);
        match self.random.random_range(0..20) {
            0..6 => self.acquire(name, LONG_MS).await,
            6 => {
                self.acquire(name, 50).await;
                self.settle(name).await;
            }
            7..10 => self.renew(name).await,
            10..13 => self.release(name).await,
            13..15 => self.abandon(name).await,
            15..17 => self.fence(name).await,
            17..19 => {
                let key = self.random.random_range(0..KEYS.len());
                let at = self.random.random_range(0..OWNERS);
                self.owners[key][at] = Owner::random().unwrap();
            }
            _ => {
                let ours = listed(&self.ours).await;
                let reference = listed(&self.reference).await;
                self.same("list".to_owned(), ours, reference);
            }
        }
        let ours = self.ours.inspect(&key(name)).await.unwrap();
        let reference = self.reference.inspect(&key(name)).await.unwrap();
        let what = format!("inspect {name}");
        self.same(what, timeless_state(ours), timeless_state(reference));
    }
}

#[tokio::test]
async fn every_outcome_is_the_references() {
    for seed in 0..SEEDS {
        let mut pair = Pair {
            ours: options(&format!("seed {seed}")).open().await.unwrap(),
            reference: MemoryStore::new(),
            random: StdRng::seed_from_u64(seed),
            owners: KEYS.map(|_| (0..OWNERS).map(|_| Owner::random().unwrap()).collect()),
            tokens: vec![token(FLOOR)],
            trace: vec![format!("seed {seed}")],
        };
        for name in KEYS {
            let (floor, when) = (token(FLOOR), FenceWhen::AtExpiry);
            pair.ours.fence(&key(name), floor, when).await.unwrap();
            pair.reference.fence(&key(name), floor, when).await.unwrap();
        }
        for _ in 0..STEPS {
            pair.step().await;
        }
    }
}
