//! Random operations: the reference answers the same, and so does every other client
//! that applies the same log, from its beginning or from a snapshot.

use futures_util::{FutureExt, StreamExt};
use lease_core::{FenceWhen, Token};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::MemoryQueues;
use crate::item::ClaimRef;
use crate::name::{Lane, QueueName};
use crate::nats::items::op::OneSettle;
use crate::store::{Answer, ClaimRequest, QueueStore, Settle, Settled, What};

const SEEDS: u64 = 60;
const STEPS: u64 = 150;

/// What one operation came to, whoever was asked.
#[derive(Debug, PartialEq)]
enum Said {
    Added(Vec<crate::store::Added>),
    Claimed(Answer),
    Settled(Vec<Settled>),
    Abandoned,
    Fenced(Token),
    Requeued(bool),
}

struct World {
    random: StdRng,
    clock: Arc<ManualClock>,
    name: QueueName,
    reference: MemoryQueues,
    machine: Queue,
    /// Applies what is in the log.
    replayed: Queue,
    /// Was saved and loaded on the way.
    loaded: Queue,
    claims: Vec<ClaimRef>,
    revision: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::new());
        let epoch = Duration::from_micros(EPOCH_US);
        Self {
            random: StdRng::seed_from_u64(seed),
            name: QueueName::new("q").unwrap(),
            reference: MemoryQueues::with_clock(Arc::clone(&clock) as Arc<dyn Clock>, epoch),
            machine: queue(&clock),
            replayed: queue(&clock),
            loaded: queue(&clock),
            clock,
            claims: Vec::new(),
            revision: 0,
        }
    }

    fn pick(&mut self, most: u8) -> u8 {
        self.random.random_range(1..=most)
    }

    fn lane(&mut self) -> Lane {
        match self.random.random_bool(0.5) {
            true => Lane::Group(key(self.pick(3))),
            false => Lane::Item(item(self.pick(24)).id),
        }
    }

    /// Most often one that was granted; some are forged.
    fn claim(&mut self) -> ClaimRef {
        let newest = self.claims.len().saturating_sub(6);
        let known = match self.claims.len() {
            0 => None,
            len => Some(self.claims[self.random.random_range(newest..len)].clone()),
        };
        let mut claim = known.unwrap_or(ClaimRef {
            item: item(1).id,
            lane: Lane::Item(item(1).id),
            owner: owner(1),
            token: Token::MIN,
        });
        match self.random.random_range(0..20) {
            0 => claim.owner = owner(self.pick(9)),
            1 => claim.token = claim.token.next().unwrap(),
            2 => claim.lane = self.lane(),
            3 => claim.item = item(self.pick(24)).id,
            _ => {}
        }
        claim
    }

    fn new_item(&mut self) -> NewItem {
        let mut new = item(self.pick(24));
        if self.random.random_bool(0.6) {
            new.group = Some(key(self.pick(3)));
        }
        if self.random.random_bool(0.2) {
            new.dedup = Some(key(self.pick(4)));
        }
        if self.random.random_bool(0.2) {
            new.delay = Duration::from_millis(self.random.random_range(0..300));
        }
        new
    }

    fn settle(&mut self) -> Settle {
        match self.random.random_range(0..6) {
            0 | 1 => Settle::Extend(ttl(self.random.random_range(100..600))),
            2 => Settle::Complete,
            3 | 4 => Settle::Retry {
                delay: Duration::from_millis(self.random.random_range(0..200)),
                counts: self.random.random_bool(0.5),
                error: self
                    .random
                    .random_bool(0.5)
                    .then(|| "why \"\n\u{1f980}".into()),
            },
            _ => Settle::Bury {
                reason: "poison".into(),
            },
        }
    }

    /// The next operation, with what its client has seen.
    fn op(&mut self) -> Op {
        match self.random.random_range(0..12) {
            0..=2 => {
                let mut items: Vec<NewItem> = Vec::new();
                for _ in 0..self.pick(3) {
                    let new = self.new_item();
                    if items.iter().all(|item| item.id != new.id) {
                        items.push(new);
                    }
                }
                Op::Put(items)
            }
            3..=5 => Op::Claim {
                owner: owner(self.pick(60)),
                ttl: ttl(self.random.random_range(100..500)),
                label: Label::new("me").unwrap(),
                max: usize::from(self.pick(3)),
                over: self.machine.sights.over(usize::MAX),
            },
            6..=8 => {
                let one = |world: &mut Self| {
                    let claim = world.claim();
                    let seen = world.machine.seen(&claim);
                    let settle = world.settle();
                    OneSettle {
                        claim,
                        settle,
                        seen,
                    }
                };
                Op::Settle((0..self.pick(2)).map(|_| one(self)).collect())
            }
            9 => {
                let owner = self.claim().owner;
                let over = self.machine.over_of(owner);
                Op::Abandon { owner, over }
            }
            10 => {
                let lane = self.claim().lane;
                let over = self.machine.over_at(&lane).into_iter().collect();
                let by = self.random.random_range(0..3_000_000);
                let now_us = now(&self.clock, 0).us;
                Op::Fence {
                    lane,
                    at_least: Token::new(now_us - 1_000_000 + by).unwrap(),
                    when: match self.random.random_bool(0.5) {
                        true => FenceWhen::Immediately,
                        false => FenceWhen::AtExpiry,
                    },
                    over,
                }
            }
            _ => Op::Requeue(item(self.pick(24)).id),
        }
    }

    /// What the reference says of it.
    fn reference(&self, op: &Op) -> Said {
        let (store, name) = (&self.reference, &self.name);
        let said = async {
            match op {
                Op::Put(items) => Said::Added(store.put(name, items).await.unwrap()),
                Op::Claim {
                    owner,
                    ttl,
                    label,
                    max,
                    ..
                } => {
                    let request = ClaimRequest {
                        owner: *owner,
                        ttl: *ttl,
                        label: label.clone(),
                        what: What::Next { max: *max },
                    };
                    Said::Claimed(store.claim(name, &request).await.unwrap())
                }
                Op::Settle(all) => {
                    let claims = all
                        .iter()
                        .map(|one| (one.claim.clone(), one.settle.clone()));
                    let claims: Vec<_> = claims.collect();
                    let settled = store.settle(name, &claims).await;
                    Said::Settled(settled.into_iter().map(Result::unwrap).collect())
                }
                Op::Abandon { owner, .. } => {
                    store.abandon(name, None, *owner).await.unwrap();
                    Said::Abandoned
                }
                Op::Fence {
                    lane,
                    at_least,
                    when,
                    ..
                } => Said::Fenced(store.fence(name, lane, *at_least, *when).await.unwrap()),
                Op::Requeue(item) => Said::Requeued(store.requeue(name, *item).await.unwrap()),
            }
        };
        said.now_or_never().unwrap()
    }

    /// What a client of the machine would say of it.
    fn said(&self, reply: Reply) -> Said {
        match reply {
            Reply::Added(added) => Said::Added(added),
            Reply::Claimed(Answer::Nothing { next }, _) => {
                let expires = self.machine.sights.next();
                let next = next.into_iter().chain(expires).min();
                Said::Claimed(Answer::Nothing { next })
            }
            Reply::Claimed(answer, _) => Said::Claimed(answer),
            Reply::Settled(settled, _) => Said::Settled(settled),
            Reply::Abandoned => Said::Abandoned,
            Reply::Fenced(mark) => Said::Fenced(mark),
            Reply::Requeued(was_dead) => Said::Requeued(was_dead),
            Reply::Full { .. } => panic!("it is not full"),
        }
    }

    fn step(&mut self, seed: u64) {
        if self.random.random_bool(0.4) {
            let by = self.random.random_range(0..250_000);
            self.clock.advance(Duration::from_micros(by));
        }
        let op = self.op();
        self.revision += 1;
        let at = now(&self.clock, self.revision);
        let context = format!("seed {seed}, step {}: {op:?}", self.revision);
        let read = through_the_log(&op);
        let reply = self.machine.apply(at, op.clone());
        assert_eq!(self.replayed.apply(at, read.clone()), reply, "{context}");
        assert_eq!(self.loaded.apply(at, read), reply, "{context}");
        if let Reply::Claimed(Answer::Claimed { items, .. }, _) = &reply {
            for item in items {
                self.machine
                    .note_sent(&item.claim, at.revision, self.clock.now());
            }
            self.claims
                .extend(items.iter().map(|item| item.claim.clone()));
        }
        if let (Op::Settle(all), Reply::Settled(..)) = (&op, &reply) {
            for one in all {
                self.machine
                    .note_sent(&one.claim, at.revision, self.clock.now());
            }
        }
        assert_eq!(self.said(reply), self.reference(&op), "{context}");
        self.look(&context);
        if self.random.random_bool(0.1) {
            self.save_and_load(&context);
        }
    }

    fn look(&self, context: &str) {
        let (store, name) = (&self.reference, &self.name);
        let depth = store.depth(name).now_or_never().unwrap().unwrap();
        assert_eq!(self.machine.depth(), depth, "{context}");
        for dead in [false, true] {
            let listed = store.items(name, dead).map(Result::unwrap);
            let listed: Vec<_> = listed.collect().now_or_never().unwrap();
            let page = self.machine.page(dead, None, 256);
            let page: Vec<_> = page.into_iter().map(|(_, state)| state).collect();
            assert_eq!(page, listed, "{context}");
        }
    }

    fn save_and_load(&mut self, context: &str) {
        let saved = bytes(&self.machine);
        assert_eq!(bytes(&self.replayed), saved, "{context}");
        assert_eq!(bytes(&self.loaded), saved, "{context}");
        let read = |(text, bodies): &(String, Vec<Bytes>)| {
            (serde_json::from_str(text).unwrap(), bodies.clone())
        };
        self.loaded = Queue::load(saved.iter().map(read).collect()).unwrap();
        assert_eq!(bytes(&self.loaded), saved, "{context}");
    }
}

#[test]
fn with_the_expiries_given_it_answers_as_the_reference_does_and_as_its_copies_do() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step(seed);
        }
    }
}

/// Whatever is missing or changed of a snapshot, it is refused or is a state; never a
/// panic, then or later.
#[test]
fn a_damaged_snapshot_does_no_harm() {
    for seed in 0..6 {
        let mut world = World::new(seed);
        for _ in 0..STEPS {
            world.step(seed);
        }
        let saved = bytes(&world.machine);
        for _ in 0..60 {
            let mut pieces = saved.clone();
            let n = world.random.random_range(0..pieces.len());
            match world.random.random_range(0..4) {
                0 => {
                    pieces.remove(n);
                }
                1 => {
                    pieces[n].1.pop();
                }
                2 => pieces.swap(0, n),
                _ => {
                    let digits: Vec<usize> = pieces[n].0.match_indices('1').map(|m| m.0).collect();
                    if let Some(at) = digits.get(world.random.random_range(0..=digits.len())) {
                        pieces[n].0.replace_range(*at..=*at, "7");
                    }
                }
            }
            let pieces = pieces
                .into_iter()
                .filter_map(|(text, bodies)| Some((serde_json::from_str(&text).ok()?, bodies)));
            if let Some(mut queue) = Queue::load(pieces.collect()) {
                for _ in 0..10 {
                    let op = world.op();
                    world.revision += 1;
                    queue.apply(now(&world.clock, world.revision), op);
                    let _ = (queue.depth(), queue.page(false, None, 10));
                }
            }
        }
    }
}

#[test]
fn what_is_not_an_operation_is_not_read() {
    let none = &mut std::iter::empty();
    for text in [
        "null",
        "1",
        "{}",
        r#"{"put":[{"id":"00","group":null,"dedup":null,"delay_us":0}]}"#,
        r#"{"put":[{"id":"01010101010101010101010101010101","group":null,"dedup":null,"delay_us":0}]}"#,
        r#"{"requeue":"x"}"#,
        r#"{"abandon":{"owner":"01010101010101010101010101010101"}}"#,
        r#"{"fence":{"lane":{"key":"k"},"at_least":1,"immediately":true,"over":[]}}"#,
        r#"{"fence":{"lane":{"group":"k"},"at_least":0,"immediately":true,"over":[]}}"#,
        r#"{"fence":{"lane":{"group":""},"at_least":1,"immediately":true,"over":[]}}"#,
        r#"{"other":1}"#,
    ] {
        let value = serde_json::from_str(text).unwrap();
        assert_eq!(Queue::decode(value, none), None, "{text}");
    }
}
