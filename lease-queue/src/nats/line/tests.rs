//! The rules of a record beside those of the reference store, at random; and what holds
//! where clients see it late.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lease_core::{
    AcquireOutcome, Clock, FenceWhen, Key, Label, ManualClock, Moment, Owner, RefusedReason, Token,
    TokenRule, Ttl, WAITER_TURN, place_lasts,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::record::{Nonce, Record, Standing};
use super::super::rules::{self, Ask, Kept, Step, Try};
use super::super::sight::{Sights, View};
use crate::item::{ClaimRef, ItemId};
use crate::name::Lane;
use crate::rules::QueueRules;
use crate::store::{Answer, ClaimRequest, Settle, Settled, What};
use crate::table::Table;
use crate::table::lane::Now;

const RUNS: u64 = 400;
const STEPS: usize = 120;
const LOOK: Duration = Duration::from_secs(5);

fn key() -> Key {
    Key::new("k").unwrap()
}

fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).unwrap()
}

fn label(owner: Owner) -> Label {
    Label::new(owner.to_string()).unwrap()
}

/// One server with one key, and clients that keep time by one clock.
struct World {
    clock: Arc<ManualClock>,
    clients: Vec<Sights>,
    revision: u64,
    record: Record,
    stored_ms: i64,
    /// How far the server's clock is ahead.
    ahead_ms: i64,
    nonce: Nonce,
    /// Whether each client hears of each record at once.
    told: bool,
}

impl World {
    fn new(clients: usize, told: bool) -> Self {
        let clock = Arc::new(ManualClock::new());
        let client = |_| Sights::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let world = Self {
            clients: (0..clients).map(client).collect(),
            clock,
            revision: 0,
            record: Record::default(),
            stored_ms: 0,
            ahead_ms: 0,
            nonce: Nonce::default(),
            told,
        };
        world.tell();
        world
    }

    fn ms(&self) -> u64 {
        self.clock.now().since(Moment::START).as_millis() as u64
    }

    fn look(&self, client: usize) -> View {
        let record = self.record.clone();
        let record = record.aged(self.stored_ms, Duration::from_secs(600));
        self.clients[client].see("k", self.revision, self.revision, record)
    }

    fn tell(&self) {
        if self.told {
            for client in 0..self.clients.len() {
                self.look(client);
            }
        }
    }

    fn change<T>(&mut self, client: usize, decide: impl Fn(&View, Try) -> Step<T>) -> T {
        let asked = self.clock.now();
        loop {
            self.nonce = self.nonce.next();
            let nonce = self.nonce;
            let view = self.look(client);
            let (mut record, answer) = match decide(&view, Try { asked, nonce }) {
                Step::Answer(answer) => return answer,
                Step::Write(record, answer)
                | Step::Join(record, answer)
                | Step::Leave(record, answer) => (record, Some(answer)),
                Step::Stamp(record, _) => (record, None),
            };
            record.sign(nonce, self.revision);
            // As it is read by all.
            self.record = Record::decode(&record.encode().unwrap()).unwrap();
            self.revision += 1;
            self.stored_ms = self.ms() as i64 + self.ahead_ms;
            self.clients[client].wrote("k", self.revision, *record, asked);
            self.tell();
            if let Some(answer) = answer {
                return answer;
            }
        }
    }

    fn acquire(
        &mut self,
        client: usize,
        owner: Owner,
        ms: u64,
        waits: Option<Duration>,
    ) -> AcquireOutcome {
        let label = label(owner);
        let ask = Ask {
            owner,
            ttl: ttl(ms),
            label: &label,
            rule: TokenRule::NEXT,
            waits,
            max_payload: 1 << 20,
        };
        self.change(client, |view, this| rules::acquire(view, &ask, this))
    }
}

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
                    .change(client, |view, this| rules::abandon(view, owner, this));
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

#[test]
fn a_dead_holder_is_followed_however_often_waiters_write() {
    let mut world = World::new(3, false);
    let holder = Owner::from_bytes([9; 16]);
    let granted = world.acquire(0, holder, 1_000, None);
    assert!(matches!(granted, AcquireOutcome::Granted(_)));
    let waiter = |n| Owner::from_bytes([n; 16]);
    let mut writes = 0;
    for ms in 0..1_000 {
        let (client, revision) = (1 + ms % 2, world.revision);
        let held = world.acquire(client, waiter(client as u8), 1_000, Some(Duration::ZERO));
        assert!(matches!(held, AcquireOutcome::Held(_)), "{held:?}");
        writes += world.revision - revision;
        world.clock.advance(Duration::from_millis(1));
    }
    assert!(writes > 900, "{writes}");
    let granted = world.acquire(1, waiter(1), 1_000, Some(Duration::ZERO));
    assert!(matches!(granted, AcquireOutcome::Granted(_)), "{granted:?}");
}

#[test]
fn a_waiter_alone_with_a_holder_writes_at_each_second_look() {
    let mut world = World::new(2, false);
    world.acquire(0, Owner::from_bytes([9; 16]), 3_600_000, None);
    let before = world.revision;
    for _ in 0..20 {
        world.acquire(1, Owner::from_bytes([1; 16]), 1_000, Some(LOOK));
        world.clock.advance(LOOK + Duration::from_millis(2));
    }
    assert_eq!(world.revision - before, 10);
}

#[test]
fn who_holds_nothing_lets_a_holder_go_first_that_has_not_renewed_yet() {
    let mut world = World::new(1, false);
    let holder = Owner::from_bytes([255; 16]);
    world.acquire(0, holder, 6_400, None);
    let joins = |world: &mut World, n: u8| {
        let crowded = world.look(0).is_crowded();
        world.acquire(0, Owner::from_bytes([n; 16]), 1_000, Some(LOOK));
        crowded
    };
    assert_eq!((0..110).position(|n| joins(&mut world, n)), Some(100));
    world.clock.advance(Duration::from_millis(1));
    world.change(0, |view, this| {
        rules::renew(view, (holder, Token::MIN), ttl(6_400), this)
    });
    assert!(!world.look(0).is_crowded());
    assert_eq!((110..=254).position(|n| joins(&mut world, n)), Some(100));
    // Nobody is there any more who could renew.
    world.clock.advance(Duration::from_millis(6_400));
    assert!(!world.look(0).is_crowded());
}

/// Each of them a program that starts, tries once and ends.
#[test]
fn programs_that_only_try_get_past_a_line_of_the_dead() {
    let mut world = World::new(20, false);
    let holder = Owner::from_bytes([9; 16]);
    world.acquire(0, holder, 60_000, None);
    for n in 1..=3 {
        world.acquire(
            usize::from(n),
            Owner::from_bytes([n; 16]),
            60_000,
            Some(LOOK),
        );
    }
    let released = world.change(0, |view, this| {
        rules::release(view, holder, Token::MIN, this)
    });
    assert_eq!(released, Kept::Done);
    let mut try_once = |client: usize, after: Duration| {
        world.clock.advance(after);
        let owner = Owner::from_bytes([client as u8 + 100; 16]);
        let outcome = world.acquire(client, owner, 60_000, None);
        matches!(outcome, AcquireOutcome::Granted(_))
    };
    assert!(!try_once(4, Duration::ZERO));
    assert!(!try_once(5, place_lasts(LOOK)));
    assert!(try_once(6, LOOK * 2));
}

#[test]
fn who_finds_no_room_comes_after_the_line() {
    let mut world = World::new(2, false);
    let holder = Owner::from_bytes([255; 16]);
    world.acquire(0, holder, 60_000, None);
    let owner = |n: u16| {
        let mut bytes = [7; 16];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        Owner::from_bytes(bytes)
    };
    let mut joined = 0;
    for n in 0..400 {
        let held = world.acquire(1, owner(n), 60_000, Some(LOOK));
        assert!(matches!(held, AcquireOutcome::Held(_)));
        joined = world.record.line.len();
    }
    assert!((100..400).contains(&joined), "{joined}");
    assert!(world.record.encode().unwrap().len() < 48 << 10);
    world.change(0, |view, this| {
        rules::release(view, holder, Token::MIN, this)
    });
    let last = world.acquire(1, owner(399), 60_000, Some(LOOK));
    let AcquireOutcome::Refused(RefusedReason::InLine { ahead, .. }) = last else {
        panic!("{last:?}");
    };
    assert_eq!(ahead, joined as u64);
    let first = world.acquire(1, owner(0), 60_000, Some(LOOK));
    assert!(matches!(first, AcquireOutcome::Granted(_)));
    // One is free.
    world.acquire(1, owner(399), 60_000, Some(LOOK));
    assert_eq!(world.record.line.last().unwrap().owner, owner(399));
}
