//! The rules of a record, with clients that see it by one clock.

mod late;
mod reference;

use std::sync::Arc;
use std::time::Duration;

use lease_core::{
    AcquireOutcome, Clock, Key, Label, ManualClock, Moment, Owner, RefusedReason, Token, TokenRule,
    Ttl, place_lasts,
};

use super::super::record::{Nonce, Record};
use super::super::rules::{self, Ask, Kept, Step, Try};
use super::super::sight::{Sights, View};

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

/// To have looked at the key a moment ago is not to have watched it.
#[test]
fn a_program_that_looks_before_it_tries_gets_past_a_line_of_the_dead() {
    let mut world = World::new(5, false);
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
    world.change(0, |view, this| {
        rules::release(view, holder, Token::MIN, this)
    });
    world.clock.advance(LOOK * 4);
    world.look(4);
    let outcome = world.acquire(4, Owner::from_bytes([104; 16]), 60_000, None);
    assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
}

/// Nobody lives long enough to see that they are.
#[test]
fn a_full_line_of_the_dead_keeps_nobody_out_who_waits_for_a_moment() {
    let mut world = World::new(3, false);
    let holder = Owner::from_bytes([255; 16]);
    world.acquire(0, holder, 3_600_000, None);
    for n in 0..=250 {
        world.acquire(1, Owner::from_bytes([n; 16]), 60_000, Some(LOOK));
    }
    world.change(0, |view, this| {
        rules::release(view, holder, Token::MIN, this)
    });
    world.clock.advance(LOOK * 20);
    let owner = Owner::from_bytes([254; 16]);
    let outcome = world.acquire(2, owner, 60_000, Some(LOOK));
    assert!(matches!(outcome, AcquireOutcome::Granted(_)), "{outcome:?}");
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
