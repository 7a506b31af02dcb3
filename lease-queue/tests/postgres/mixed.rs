//! Everything at once, by chance: what many clients ask for in gathered calls, in calls of
//! many and alone, against the same few lanes. What they were told is judged afterwards.

mod story;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lease_core::{FenceWhen, Key, Ttl};
use lease_postgres::must_begin_again;
use lease_postgres::sqlx::Connection as _;
use lease_queue::postgres::PostgresQueues;
use lease_queue::{Added, Answer, ClaimRef, NewItem, QueueStore as _, Settle, Settled};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use self::story::{Claimed, End, Ended, Story, When};
use crate::support::{connection, item, jobs, next, open, options, owner, run};

const CLIENTS: u64 = 24;
const GROUPS: usize = 5;
const KEYS: u32 = 200;
const LASTS: Duration = Duration::from_secs(4);

type Shared = Arc<Mutex<Story>>;

/// One of many clients, by its own chance.
struct Client {
    store: PostgresQueues,
    story: Shared,
    chance: StdRng,
    groups: Arc<Vec<tokio::sync::Mutex<usize>>>,
    /// Claims of its own, live or not.
    mine: Vec<ClaimRef>,
}

impl Client {
    fn of(&mut self, most: u32) -> u32 {
        self.chance.random_range(0..most)
    }

    async fn step(&mut self) {
        match self.of(100) {
            0..20 => self.put().await,
            20..55 => self.claim(1).await,
            55..60 => {
                let most = 2 + self.of(12) as usize;
                self.claim(most).await;
            }
            60..80 => self.settle(1).await,
            80..90 => {
                let many = 2 + self.of(12) as usize;
                self.settle(many).await;
            }
            90..94 => self.complete_in().await,
            94..96 => self.abandon().await,
            96..98 => self.fence().await,
            _ => self.requeue().await,
        }
    }

    async fn put(&mut self) {
        let group = self.of(2 * GROUPS as u32) as usize;
        let name = format!("g{group}");
        let lock = self.groups.get(group).map(|_| Arc::clone(&self.groups));
        let mut last = match &lock {
            Some(groups) => Some(groups[group].lock().await),
            None => None,
        };
        let many = 1 + self.chance.random_range(0..6);
        let items: Vec<NewItem> = (0..many)
            .map(|_| {
                let key = self.chance.random_range(0..4 * KEYS);
                NewItem {
                    dedup: (key < KEYS).then(|| Key::new(format!("k{key}")).unwrap()),
                    delay: match self.chance.random_range(0..4) {
                        0 => Duration::from_millis(self.chance.random_range(0..40)),
                        _ => Duration::ZERO,
                    },
                    ..item(last.is_some().then_some(&*name), "")
                }
            })
            .collect();
        // Before they can be claimed.
        for one in &items {
            if let Some(last) = &mut last {
                **last += 1;
                let place = (name.clone(), **last);
                self.story.lock().unwrap().places.insert(one.id, place);
            }
        }
        let added = self.store.put(&jobs(), &items).await.unwrap();
        drop(last);
        let mut story = self.story.lock().unwrap();
        for (one, added) in items.iter().zip(added) {
            match added {
                Added::Added => {
                    story.put.insert(one.id);
                    if let Some(key) = &one.dedup {
                        let key = key.as_str().to_owned();
                        story.keys.entry(key).or_default().insert(one.id);
                    }
                }
                Added::Duplicate { .. } => drop(story.places.remove(&one.id)),
            }
        }
    }

    async fn claim(&mut self, most: usize) {
        let ttl = Duration::from_millis(match self.of(3) {
            0 => 60,
            1 => 250,
            _ => 20_000,
        });
        let owner = owner();
        let asked = Instant::now();
        let answer = self.store.claim(&jobs(), &next(owner, most, ttl)).await;
        let told = Instant::now();
        let items = match answer.unwrap() {
            Answer::Claimed { items, .. } => items,
            Answer::Nothing { .. } => return,
            other => panic!("{other:?}"),
        };
        assert!(items.len() <= most);
        let when = When { asked, told };
        let mut story = self.story.lock().unwrap();
        for one in items {
            self.mine.push(one.claim.clone());
            let claim = one.claim;
            story.claims.push(Claimed { claim, when, ttl });
        }
    }

    /// Of its claims some, more often the latest, now and then one twice.
    fn some(&mut self, many: usize) -> Vec<ClaimRef> {
        let last = self.mine.len();
        (0..many.min(2 * last))
            .map(|_| {
                let back = self.chance.random_range(0..last.min(24)) + 1;
                self.mine[last - back].clone()
            })
            .collect()
    }

    async fn settle(&mut self, many: usize) {
        let only = self.of(2) == 0;
        let asked: Vec<_> = self
            .some(many)
            .into_iter()
            .map(|claim| match self.of(10) {
                _ if only => (claim, End::Complete, Settle::Complete),
                0..6 => (claim, End::Complete, Settle::Complete),
                6 => (claim, End::Extend, Settle::Extend(Ttl::MIN)),
                7 | 8 => {
                    let again = Settle::Retry {
                        delay: Duration::from_millis(u64::from(self.of(3)) * 5),
                        counts: self.of(2) == 0,
                        error: None,
                    };
                    (claim, End::Retry, again)
                }
                _ => {
                    let reason = "by chance".to_owned();
                    (claim, End::Bury, Settle::Bury { reason })
                }
            })
            .collect();
        let ends: Vec<_> = asked
            .iter()
            .map(|(claim, _, settle)| (claim.clone(), settle.clone()))
            .collect();
        let before = Instant::now();
        let outcomes = self.store.settle(&jobs(), &ends).await;
        let told = Instant::now();
        let when = When {
            asked: before,
            told,
        };
        let mut story = self.story.lock().unwrap();
        for ((claim, end, _), told) in asked.into_iter().zip(outcomes) {
            let told = told.unwrap();
            story.ends.push(Ended {
                claim,
                end,
                told,
                when,
            });
        }
    }

    async fn complete_in(&mut self) {
        let Some(claim) = self.some(1).pop() else {
            return;
        };
        let mut db = connection().await;
        if self.of(4) == 0 {
            let level = ["REPEATABLE READ", "SERIALIZABLE"][self.of(2) as usize];
            let sql = format!("SET default_transaction_isolation = '{level}'");
            run(&mut db, &sql).await;
        }
        let asked = Instant::now();
        let mut tx = db.begin().await.unwrap();
        let told = self.store.complete_in(&mut tx, &jobs(), &claim).await;
        let keeps = self.of(3) > 0;
        let told = match (told, keeps) {
            (Ok(Settled::Done), true) => tx.commit().await.map(|()| Settled::Done).ok(),
            (Ok(Settled::Done), false) => {
                tx.rollback().await.unwrap();
                None
            }
            (Err(error), _) => {
                assert!(must_begin_again(&error), "{error}");
                tx.rollback().await.unwrap();
                None
            }
            (Ok(told), _) => {
                tx.rollback().await.unwrap();
                Some(told)
            }
        };
        let Some(told) = told else { return };
        let when = When {
            asked,
            told: Instant::now(),
        };
        let end = End::Complete;
        self.story.lock().unwrap().ends.push(Ended {
            claim,
            end,
            told,
            when,
        });
    }

    async fn abandon(&mut self) {
        let Some(claim) = self.some(1).pop() else {
            return;
        };
        let now = Instant::now();
        let note = |story: &mut Story| *story.abandoned.entry(claim.owner).or_insert(now);
        note(&mut self.story.lock().unwrap());
        self.store
            .abandon(&jobs(), None, claim.owner)
            .await
            .unwrap();
    }

    async fn fence(&mut self) {
        let Some(claim) = self.some(1).pop() else {
            return;
        };
        let now = Instant::now();
        let note = |story: &mut Story| *story.fenced.entry(claim.lane.clone()).or_insert(now);
        note(&mut self.story.lock().unwrap());
        let when = match self.of(2) {
            0 => FenceWhen::Immediately,
            _ => FenceWhen::AtExpiry,
        };
        let above = claim.token.next().unwrap();
        self.store
            .fence(&jobs(), &claim.lane, above, when)
            .await
            .unwrap();
    }

    async fn requeue(&mut self) {
        let buried = {
            let story = self.story.lock().unwrap();
            let buried = |one: &&Ended| one.end == End::Bury && one.told == Settled::Done;
            let all: Vec<_> = story
                .ends
                .iter()
                .filter(buried)
                .map(|e| e.claim.item)
                .collect();
            all
        };
        if buried.is_empty() {
            return;
        }
        let item = buried[self.of(buried.len() as u32) as usize];
        self.story.lock().unwrap().put_back.insert(item);
        self.store.requeue(&jobs(), item).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_many_ask_for_at_once_each_is_told_what_is_true() {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let first = open("mixed").await;
    let stores: Vec<_> = [
        first.clone(),
        PostgresQueues::open(options("mixed").connections(4))
            .await
            .unwrap(),
    ]
    .into();
    let story = Shared::default();
    let groups: Arc<Vec<_>> = Arc::new((0..GROUPS).map(|_| tokio::sync::Mutex::new(0)).collect());
    let until = Instant::now() + LASTS;
    let clients = (0..CLIENTS).map(|n| {
        let mut client = Client {
            store: stores[n as usize % stores.len()].clone(),
            story: Arc::clone(&story),
            chance: StdRng::seed_from_u64(seed ^ n),
            groups: Arc::clone(&groups),
            mine: Vec::new(),
        };
        tokio::spawn(async move {
            while Instant::now() < until {
                client.step().await;
            }
            client
        })
    });
    let clients = futures_util::future::join_all(clients).await;
    let mut last = clients.into_iter().map(Result::unwrap).next().unwrap();
    // What is left: all that is claimed is given up, and all that is dead put back.
    let owners: HashSet<_> = {
        let mut story = story.lock().unwrap();
        let now = Instant::now();
        let over = |one: &&Ended| one.told == Settled::Done && one.end != End::Extend;
        let over: HashSet<_> = story
            .ends
            .iter()
            .filter(over)
            .map(|one| &one.claim)
            .collect();
        let left = story.claims.iter().filter(|one| !over.contains(&one.claim));
        let owners: HashSet<_> = left.map(|one| one.claim.owner).collect();
        for owner in &owners {
            story.abandoned.entry(*owner).or_insert(now);
        }
        let buried = story.ends.iter().filter(|one| one.end == End::Bury);
        let buried: Vec<_> = buried.map(|one| one.claim.item).collect();
        story.put_back.extend(buried);
        owners
    };
    for owner in owners {
        first.abandon(&jobs(), None, owner).await.unwrap();
    }
    let buried = story.lock().unwrap().put_back.clone();
    for item in buried {
        first.requeue(&jobs(), item).await.unwrap();
    }
    let mut rounds = 0;
    loop {
        last.claim(32).await;
        let all: Vec<_> = std::mem::take(&mut last.mine)
            .into_iter()
            .rev()
            .take(32)
            .collect();
        let ends: Vec<_> = all
            .iter()
            .map(|one| (one.clone(), Settle::Complete))
            .collect();
        let asked = Instant::now();
        let told = first.settle(&jobs(), &ends).await;
        let when = When {
            asked,
            told: Instant::now(),
        };
        for (claim, told) in all.into_iter().zip(told) {
            let (told, end) = (told.unwrap(), End::Complete);
            story.lock().unwrap().ends.push(Ended {
                claim,
                end,
                told,
                when,
            });
        }
        let depth = first.depth(&jobs()).await.unwrap();
        if (depth.ready, depth.delayed, depth.in_flight, depth.dead) == (0, 0, 0, 0) {
            break;
        }
        rounds += 1;
        assert!(rounds < 2000, "it does not get empty: {depth:?}");
        if depth.ready == 0 {
            // Delays and claims of a moment.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let story = story.lock().unwrap();
    println!(
        "{} put, {} claims, {} ends",
        story.put.len(),
        story.claims.len(),
        story.ends.len()
    );
    story.judge();
}
