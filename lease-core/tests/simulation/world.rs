//! A fleet with its workers and its operator, all from one seed.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use lease_core::{
    Clock, Error, Event, EventKind, FenceWhen, HolderRules, Key, Lease, LeaseBackend, Leases,
    MemoryStore, Moment, StoreRules, TOMBSTONE_RETENTION, Token,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::clock::{DriftingClock, TrueClock};
use crate::history::History;
use crate::network::{LONGEST, Network};

/// Everything random, in the order in which it is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Arc<Mutex<StdRng>>);

impl Dice {
    pub(crate) fn roll<T>(&self, f: impl FnOnce(&mut StdRng) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(|e| e.into_inner()))
    }

    fn ms(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.roll(|r| r.random_range(from..to)))
    }

    fn one_in(&self, n: u32) -> bool {
        self.roll(|r| r.random_range(0..n) == 0)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rules {
    pub(crate) holder: HolderRules,
    pub(crate) store: StoreRules,
}

pub(crate) struct Report {
    pub(crate) history: Vec<String>,
    pub(crate) violations: Vec<String>,
}

/// Runs one seed.
pub(crate) fn run(seed: u64, rules: Rules) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = World::new(seed, rules);
        let (history, truth) = (Arc::clone(&world.history), Arc::clone(&world.truth));
        let ended = AssertUnwindSafe(world.run()).catch_unwind().await;
        history.check(ended.is_ok(), "nothing panics", || {
            "the world panicked".to_owned()
        });
        history.check(!truth.stood_still(), "nobody polls without a pause", || {
            "somebody did".to_owned()
        });
        let (history, violations) = history.take();
        Report {
            history,
            violations,
        }
    })
}

struct World {
    truth: Arc<TrueClock>,
    dice: Dice,
    history: Arc<History>,
    store: MemoryStore,
    healed: Arc<AtomicBool>,
    keys: Vec<Key>,
    rules: Rules,
}

impl World {
    fn new(seed: u64, rules: Rules) -> Self {
        let truth = Arc::new(TrueClock::start());
        let epoch = Duration::from_secs(1_800_000_000);
        let clock: Arc<dyn Clock> = Arc::clone(&truth) as _;
        Self {
            dice: Dice(Arc::new(Mutex::new(StdRng::seed_from_u64(seed)))),
            history: Arc::new(History::new(Arc::clone(&truth))),
            store: MemoryStore::broken(clock, epoch, TOMBSTONE_RETENTION, rules.store),
            healed: Arc::new(AtomicBool::new(false)),
            keys: ["a", "b"].map(|k| Key::new(k).unwrap()).to_vec(),
            truth,
            rules,
        }
    }

    fn client(&self, name: &str) -> Leases {
        let (ppm, late_percent, trouble_percent, seed) = self.dice.roll(|r| {
            // Within the drift allowance of 1 %.
            (
                r.random_range(-9_500..9_500),
                r.random_range(0..10),
                r.random_range(0..40),
                r.random(),
            )
        });
        let network = Network {
            store: self.store.clone(),
            history: Arc::clone(&self.history),
            dice: self.dice.clone(),
            trouble_percent,
            healed: Arc::clone(&self.healed),
            cut_until: Mutex::new(Moment::START),
        };
        let clock = DriftingClock {
            truth: Arc::clone(&self.truth),
            ppm,
            late_percent,
            dice: self.dice.clone(),
        };
        let (history, name) = (Arc::clone(&self.history), name.to_owned());
        Leases::builder(Arc::new(network))
            .clock(Arc::new(clock))
            .seed(seed)
            .broken_rules(self.rules.holder)
            .observer(move |event: &Event| {
                let word = match &event.kind {
                    EventKind::Lost { reason } => format!("lost:{}", reason.as_str()),
                    other => other.as_str().to_owned(),
                };
                let (key, owner) = (&event.key, event.owner);
                if matches!(event.kind, EventKind::ReleaseFailed { .. }) {
                    history.unreleased(owner);
                }
                let token = event.token.map_or(0, |t| t.get());
                history.line(&name, &format!("{word} {key} {owner:?} {token}"));
            })
            .build()
    }

    async fn run(self) {
        let world = Arc::new(self);
        let clients: Vec<Leases> = (0..3)
            .map(|n| world.client(&format!("client-{n}")))
            .collect();
        let mut tasks = Vec::new();
        for (n, client) in clients.iter().enumerate() {
            for task in 0..2 {
                let worker = Worker {
                    world: Arc::clone(&world),
                    leases: client.clone(),
                    name: format!("worker-{n}.{task}"),
                };
                tasks.push(tokio::spawn(worker.run()));
            }
        }
        tasks.push(tokio::spawn(operator(Arc::clone(&world))));
        for task in tasks {
            let ended = task.await;
            world
                .history
                .check(ended.is_ok(), "nothing panics", || format!("{ended:?}"));
        }
        // Then everything is well again, and the fleet goes.
        world.healed.store(true, Ordering::Relaxed);
        for client in &clients {
            let report = client.shutdown(Duration::from_secs(60)).await;
            world.history.check(
                report.settled,
                "a shutdown settles in a healthy world",
                || format!("{report:?}"),
            );
        }
        world.history.fleet_is_over();
        for key in &world.keys {
            let state = world.store.inspect(key).await.unwrap();
            world.history.not_held_any_more(&state);
        }
        // Whatever is still under way arrives now, and must find nothing.
        drop(clients);
        tokio::time::sleep(LONGEST * 3).await;
        world.the_keys_can_be_had().await;
    }

    async fn the_keys_can_be_had(self: &Arc<Self>) {
        for key in &self.keys {
            let leases = Leases::new(Arc::new(self.store.clone()));
            let lease = leases
                .lease(key)
                .wait(Duration::from_secs(1))
                .acquire()
                .await;
            self.history
                .check(lease.is_ok(), "a key is blocked for good", || {
                    format!("{lease:?}")
                });
        }
    }
}

/// Cuts holders off now and then, at their expiry: exclusion must hold.
async fn operator(world: Arc<World>) {
    for _ in 0..2 {
        tokio::time::sleep(world.dice.ms(1, 8_000)).await;
        let key = world
            .dice
            .roll(|r| world.keys[r.random_range(0..world.keys.len())].clone());
        let mark = world.store.inspect(&key).await.unwrap().high_water;
        // Now and then far ahead of the store's clock, as a floor that is
        // carried over from another store.
        let ahead = if world.dice.one_in(4) { 20_000_000 } else { 1 };
        if let Some(above) = mark.and_then(|mark| Token::new(mark.get() + ahead).ok()) {
            let mark = world
                .store
                .fence(&key, above, FenceWhen::AtExpiry)
                .await
                .unwrap();
            world.history.fenced(&key, mark.max(above));
        }
    }
}

struct Worker {
    world: Arc<World>,
    leases: Leases,
    name: String,
}

impl Worker {
    async fn run(self) {
        for _ in 0..4 {
            let dice = &self.world.dice;
            let key =
                dice.roll(|r| self.world.keys[r.random_range(0..self.world.keys.len())].clone());
            let mut acquire = self.leases.lease(&key).ttl(dice.ms(200, 3_000));
            if !dice.one_in(3) {
                acquire = acquire.wait(dice.ms(0, 6_000));
            }
            if dice.one_in(8) {
                acquire = acquire.max_hold(dice.ms(1, 4_000));
            }
            let patience = if dice.one_in(4) {
                dice.ms(0, 2_000)
            } else {
                LONGEST
            };
            match tokio::time::timeout(patience, acquire.acquire()).await {
                Ok(Ok(lease)) => self.hold(lease).await,
                Ok(Err(error)) => self.refused(&error),
                Err(_) => self
                    .world
                    .history
                    .line(&self.name, &format!("dropped {key}")),
            }
            tokio::time::sleep(dice.ms(0, 500)).await;
        }
    }

    fn refused(&self, error: &Error) {
        let expected = matches!(error, Error::Contended { .. } | Error::Store(_));
        self.world
            .history
            .check(expected, "an error that nothing here can cause", || {
                error.to_string()
            });
    }

    async fn hold(&self, lease: Lease) {
        let (world, dice) = (&self.world, &self.world.dice);
        let (key, owner, token) = (lease.key().clone(), lease.owner(), lease.token());
        world.history.handed_out(&self.name, &key, token);
        let mut deadline = lease.deadline();
        for _ in 0..dice.roll(|r| r.random_range(0..12)) {
            if lease.check().is_err() {
                break;
            }
            // The check and the write are one moment here; what comes between
            // them in the world is the fence's business.
            world.history.wrote(&self.name, &key, owner, token);
            let now = lease.deadline();
            world
                .history
                .check(now >= deadline, "a deadline moved back (b)", || {
                    format!("{key}: from {deadline:?} to {now:?}")
                });
            deadline = now;
            tokio::select! {
                biased;
                lost = lease.lost() => {
                    let held = lease.check().is_ok();
                    world.history.check(!held, "loss stays", || format!("{lost}"));
                }
                () = tokio::time::sleep(dice.ms(1, 900)) => {}
            }
        }
        match dice.roll(|r| r.random_range(0..4)) {
            0 => drop(lease),
            1 => {
                // A release whose caller goes away must end all the same.
                let _ = tokio::time::timeout(dice.ms(0, 3), lease.release()).await;
            }
            _ => {
                let _ = lease.release().await;
            }
        }
    }
}
