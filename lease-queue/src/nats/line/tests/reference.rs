//! The rules of a record beside those of the reference store, at random.

use std::time::Duration;

use lease_core::{AcquireOutcome, FenceWhen, Owner, RefusedReason, Token, TokenRule};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{RUNS, STEPS, World, key, label, ttl};
use crate::item::{ClaimRef, ItemId};
use crate::name::Lane;
use crate::nats::rules::{self, Kept};
use crate::rules::QueueRules;
use crate::store::{Answer, ClaimRequest, Settle, Settled, What};
use crate::table::Table;
use crate::table::lane::Now;

/// What both say in the same words.
fn told(outcome: AcquireOutcome) -> String {
    match outcome {
        AcquireOutcome::Granted(granted) => format!("{} {:?}", granted.token, granted.taken_over),
        AcquireOutcome::Refused(RefusedReason::Abandoned | RefusedReason::Revoked) => {
            "burnt".to_owned()
        }
        other => format!("{other:?}"),
    }
}

/// The reference store beside it.
struct Both {
    world: World,
    table: Table,
    random: StdRng,
    owners: Vec<Owner>,
    granted: Vec<(Owner, Token)>,
}

impl Both {
    fn now(&self) -> Now {
        let us = self.world.ms() * 1000;
        Now { us, epoch_us: 1 }
    }

    fn owner(&mut self) -> Owner {
        if self.owners.len() < 5 || self.random.random_range(0..6) == 0 {
            let owner = Owner::from_bytes(self.random.random());
            self.owners.push(owner);
        }
        let latest = self.owners.len().saturating_sub(6);
        self.owners[self.random.random_range(latest..self.owners.len())]
    }

    fn acquire(&mut self, client: usize) -> (String, String) {
        let (owner, ms) = (self.owner(), self.random.random_range(50..2_000));
        // A place of somebody who asks again at once lasts exactly as long as it must.
        let waits = self.random.random_bool(0.7).then_some(Duration::ZERO);
        let outcome = self.world.acquire(client, owner, ms, waits);
        if let AcquireOutcome::Granted(granted) = &outcome {
            self.granted.push((owner, granted.token));
        }
        let request = ClaimRequest {
            owner,
            ttl: ttl(ms),
            label: label(owner),
            what: What::Key {
                key: key(),
                rule: TokenRule::NEXT,
                waits,
            },
        };
        let expected = match self.table.claim(&request, self.now()) {
            Answer::Claimed {
                items, taken_over, ..
            } => format!("{} {taken_over:?}", items[0].claim.token),
            Answer::Held(holder) => told(AcquireOutcome::Held(holder)),
            Answer::Refused(reason) => told(AcquireOutcome::Refused(reason)),
            other => format!("{other:?}"),
        };
        (told(outcome), expected)
    }

    fn settle(&mut self, client: usize, extends: bool) -> (String, String) {
        let latest = self.granted.len().saturating_sub(3);
        let Some((owner, token)) = self.granted[latest..].first().copied() else {
            return Default::default();
        };
        let ms = self.random.random_range(50..2_000);
        let settle = match extends {
            true => Settle::Extend(ttl(ms)),
            false => Settle::Retry {
                delay: Duration::ZERO,
                counts: false,
                error: None,
            },
        };
        let kept = self.world.change(client, |view, this| match extends {
            true => rules::renew(view, (owner, token), ttl(ms), this),
            false => rules::release(view, owner, token, this),
        });
        let claim = ClaimRef {
            item: ItemId::TOKEN,
            lane: Lane::Key(key()),
            owner,
            token,
        };
        let settled = self.table.settle(&claim, &settle, self.now());
        let done = (kept == Kept::Done, settled == Settled::Done);
        (done.0.to_string(), done.1.to_string())
    }

    fn step(&mut self) -> (String, String) {
        let client = self.random.random_range(0..self.world.clients.len());
        match self.random.random_range(0..20) {
            0..=9 => self.acquire(client),
            10..=11 => self.settle(client, false),
            12 => self.settle(client, true),
            13 => {
                let owner = self.owner();
                self.world
                    .change(client, |view, this| rules::abandon(view, vec![owner], this));
                self.table.abandon(Some(&key()), owner, self.now());
                Default::default()
            }
            14 if self.random.random_bool(0.3) => {
                let mark = self.world.record.mark.map_or(1, Token::get);
                let at_least = Token::new(mark + self.random.random_range(0..2)).unwrap();
                let when = match self.random.random_bool(0.5) {
                    true => FenceWhen::Immediately,
                    false => FenceWhen::AtExpiry,
                };
                let ours = self.world.change(client, |view, this| {
                    rules::fence(view, at_least, when, this)
                });
                let lane = Lane::Key(key());
                let theirs = self.table.fence(&lane, at_least, when, self.now());
                (ours.to_string(), theirs.to_string())
            }
            _ => {
                let by = self.random.random_range(0..700);
                self.world.clock.advance(Duration::from_millis(by));
                Default::default()
            }
        }
    }
}

#[test]
fn whoever_sees_all_is_answered_as_by_the_reference_store() {
    let (mut granted, mut kept_out) = (0, 0);
    for seed in 0..RUNS {
        let mut both = Both {
            world: World::new(4, true),
            table: Table::new(QueueRules::ALL),
            random: StdRng::seed_from_u64(seed),
            owners: Vec::new(),
            granted: Vec::new(),
        };
        for step in 0..STEPS {
            let (ours, theirs) = both.step();
            assert_eq!(ours, theirs, "seed {seed}, step {step}");
            kept_out += usize::from(ours.contains("InLine"));
        }
        granted += both.granted.len();
    }
    assert!(granted > 2_000 && kept_out > 500, "{granted}, {kept_out}");
}
