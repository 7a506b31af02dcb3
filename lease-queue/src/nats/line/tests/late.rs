//! What holds where clients see a record late, at random.

use std::collections::HashMap;
use std::time::Duration;

use lease_core::{AcquireOutcome, Owner, RefusedReason, WAITER_TURN, place_lasts};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{LOOK, RUNS, STEPS, World};
use crate::nats::record::Standing;
use crate::nats::rules::{self, Kept};

/// Waiters that look now and then, of clients that are told nothing.
struct Late {
    world: World,
    random: StdRng,
    /// When each asked last, and within what time it asks again.
    asked: HashMap<Owner, (u64, Duration)>,
    /// Since when the key is free.
    free_ms: u64,
}

impl Late {
    /// When the grant's time is truly over.
    fn is_free(&self) -> bool {
        self.free_ms <= self.world.ms()
    }

    /// Of those ahead that are waited for, those whose places must last.
    fn ahead_of(&self, owner: Owner) -> u64 {
        let line = self.world.record.line.iter();
        let ahead = line.take_while(|place| place.owner != owner);
        let counts = ahead.filter(|place| {
            let (asked, waits) = self.asked[&place.owner];
            let until = Duration::from_millis(asked) + place_lasts(waits);
            !place.missed && Duration::from_millis(self.world.ms()) < until
        });
        counts.count() as u64
    }

    fn asks(&mut self, client: usize, owner: Owner, seed: u64) -> bool {
        let waits = match self.random.random_range(0..4) {
            0 => None,
            1 => Some(Duration::ZERO),
            _ => Some(LOOK),
        };
        let ms = self.random.random_range(50..4_000);
        let ahead = self.ahead_of(owner);
        let (free, now) = (self.is_free(), self.world.ms());
        let holder = self.world.record.grant.clone();
        let outcome = self.world.acquire(client, owner, ms, waits);
        match outcome {
            AcquireOutcome::Granted(_) => {
                let own =
                    holder.is_some_and(|g| g.owner == owner && g.standing == Standing::Granted);
                assert!(free || own, "seed {seed}: two at a time");
                let free_for = Duration::from_millis(now - self.free_ms.min(now));
                let turns = WAITER_TURN * u32::try_from(ahead).unwrap();
                assert!(own || free_for >= turns, "seed {seed}: past {ahead}");
                self.free_ms = match own && !free {
                    true => self.free_ms.max(now + ms),
                    false => now + ms,
                };
                self.asked.remove(&owner);
                true
            }
            AcquireOutcome::Held(_) | AcquireOutcome::Refused(RefusedReason::InLine { .. }) => {
                if let Some(waits) = waits {
                    self.asked.insert(owner, (now, waits));
                    let line = &self.world.record.line;
                    assert!(line.iter().any(|p| p.owner == owner && !p.missed));
                }
                false
            }
            other => panic!("seed {seed}: {other:?}"),
        }
    }
}

#[test]
fn whoever_sees_late_is_never_too_early() {
    let mut granted = 0;
    for seed in 0..RUNS {
        let mut late = Late {
            world: World::new(6, false),
            random: StdRng::seed_from_u64(seed),
            asked: HashMap::new(),
            free_ms: 0,
        };
        let mut owners: Vec<_> = (0..6).map(|n| Owner::from_bytes([n; 16])).collect();
        let mut next = 6;
        for _ in 0..STEPS {
            let client = late.random.random_range(0..6);
            let owner = owners[client];
            let by = match late.random.random_range(0..10) {
                0 => late.random.random_range(0..12_000),
                _ => late.random.random_range(0..500),
            };
            match late.random.random_range(0..10) {
                0..=5 => granted += usize::from(late.asks(client, owner, seed)),
                6 => {
                    let grant = late.world.record.grant.clone();
                    let token = grant.filter(|g| g.owner == owner).map(|g| g.token);
                    if let Some(token) = token {
                        let kept = late.world.change(client, |view, this| {
                            rules::release(view, owner, token, this)
                        });
                        if kept == Kept::Done {
                            late.free_ms = late.free_ms.min(late.world.ms());
                        }
                        owners[client] = Owner::from_bytes([next; 16]);
                        next = next.wrapping_add(1);
                    }
                }
                _ => late.world.clock.advance(Duration::from_millis(by)),
            }
        }
    }
    assert!(granted > 2_000, "{granted}");
}
