//! The product's own quorum over nodes that are slow, cut off, lost and restarted
//! empty, with workers and an operator: all from one seed.
//!
//! `LEASES_QUORUM_SEED=17` runs one again, `LEASES_QUORUM_SEEDS` says how many.

mod history;
mod link;
mod server;
mod slow;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lease_core::{FenceWhen, Key, LeaseBackend, Leases, Quorum, QuorumRules, Token};
use tokio::time::Instant;

use history::{History, MAX_TTL};
use link::Link;
use server::{Dice, Server, TrueClock};

const SEEDS: u64 = 400;

#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    quorum: QuorumRules,
}

struct World {
    dice: Dice,
    history: History,
    servers: Vec<Arc<Server>>,
    clock: Arc<TrueClock>,
    healed: Arc<AtomicBool>,
    key: Key,
    rules: Rules,
}

/// What one seed came to: violations, leases, writes.
fn run(seed: u64, rules: Rules) -> (Vec<String>, usize, usize) {
    let nodes = if seed.is_multiple_of(3) { 5 } else { 3 };
    in_a_world(seed, nodes, rules, |world| async move { world.run().await })
}

fn in_a_world<F: Future<Output = ()>>(
    seed: u64,
    nodes: usize,
    rules: Rules,
    story: impl FnOnce(Arc<World>) -> F,
) -> (Vec<String>, usize, usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let dice = Dice::new(seed);
        let clock = Arc::new(TrueClock(Instant::now()));
        let servers = (0..nodes).map(|_| Arc::new(Server::new(Arc::clone(&clock) as _, &dice)));
        let world = Arc::new(World {
            servers: servers.collect(),
            history: History::default(),
            healed: Arc::default(),
            key: Key::new("k").unwrap(),
            dice,
            clock,
            rules,
        });
        story(Arc::clone(&world)).await;
        world.history.take()
    })
}

impl World {
    fn quorum(&self, trouble: u64) -> Arc<Quorum> {
        let links = self.servers.iter().enumerate().map(|(i, server)| {
            let link: Arc<dyn LeaseBackend> = Arc::new(Link {
                server: Arc::clone(server),
                dice: self.dice.clone(),
                trouble,
                healed: Arc::clone(&self.healed),
            });
            (format!("n{i}"), link)
        });
        let seed = self.dice.below(u64::MAX);
        Arc::new(Quorum::broken(links, self.rules.quorum, seed).unwrap())
    }

    /// One whose network loses nothing.
    fn calm_client(&self) -> Leases {
        self.client_of(self.quorum(0))
    }

    fn client(&self) -> Leases {
        self.client_of(self.quorum(self.dice.below(25)))
    }

    fn client_of(&self, quorum: Arc<Quorum>) -> Leases {
        Leases::builder(quorum)
            .clock(Arc::clone(&self.clock) as _)
            .seed(self.dice.below(u64::MAX))
            .build()
    }

    async fn run(self: &Arc<Self>) {
        let clients: Vec<_> = (0..3).map(|_| self.client()).collect();
        let mut tasks: Vec<_> = clients
            .iter()
            .map(|client| tokio::spawn(worker(Arc::clone(self), client.clone())))
            .collect();
        tasks.push(tokio::spawn(operator(Arc::clone(self))));
        let chaos = tokio::spawn(chaos(Arc::clone(self)));
        for task in tasks {
            let ended = task.await;
            self.history
                .check(ended.is_ok(), || format!("a panic: {ended:?}"));
        }
        chaos.abort();
        self.healed.store(true, Ordering::Relaxed);
        for client in clients {
            let report = client.shutdown(Duration::from_secs(60)).await;
            self.history
                .check(report.settled, || format!("does not settle: {report:?}"));
        }
        tokio::time::sleep(MAX_TTL * 2).await;
        let lease = self
            .client()
            .lease(&self.key)
            .wait(Duration::from_secs(1))
            .acquire()
            .await;
        self.history
            .check(lease.is_ok(), || format!("blocked for good: {lease:?}"));
    }
}

async fn worker(world: Arc<World>, leases: Leases) {
    let dice = &world.dice;
    for _ in 0..5 {
        let floor = world.history.floor(&world.key);
        let mut acquire = leases.lease(&world.key).ttl(dice.ms(300, 3_000));
        if dice.below(3) > 0 {
            acquire = acquire.wait(dice.ms(0, 5_000));
        }
        let patience = if dice.below(4) == 0 {
            dice.ms(1, 500)
        } else {
            Duration::from_secs(20)
        };
        if let Ok(Ok(lease)) = tokio::time::timeout(patience, acquire.acquire()).await {
            world.history.handed_out(&world.key, lease.token(), floor);
            for _ in 0..dice.below(15) {
                if lease.check().is_err() {
                    break;
                }
                world.history.wrote(&world.key, lease.token());
                tokio::time::sleep(dice.ms(1, 500)).await;
            }
            if dice.below(3) > 0 {
                let _ = lease.release().await;
            }
        }
        tokio::time::sleep(dice.ms(0, 300)).await;
    }
}

/// Cuts the holder off now and then.
async fn operator(world: Arc<World>) {
    let quorum = world.quorum(world.dice.below(25));
    for _ in 0..2 {
        tokio::time::sleep(world.dice.ms(500, 8_000)).await;
        let fence = async {
            let mark = quorum.inspect(&world.key).await.ok()?.high_water?;
            let above = Token::new(mark.get() + 1).ok()?;
            let mark = quorum
                .fence(&world.key, above, FenceWhen::AtExpiry)
                .await
                .ok()?;
            world.history.fenced(&world.key, mark);
            Some(())
        };
        let _ = tokio::time::timeout(Duration::from_secs(5), fence).await;
    }
}

/// Troubles one minority after the other.
async fn chaos(world: Arc<World>) {
    let dice = &world.dice;
    loop {
        tokio::time::sleep(dice.ms(200, 3_000)).await;
        let n = world.servers.len();
        let first = dice.below(n as u64) as usize;
        for i in 0..n / 2 {
            let server = &world.servers[(first + i) % n];
            match dice.below(4) {
                0 => server.go_down(dice.ms(100, 4_000)),
                1 => server.be_slow(dice.ms(100, 4_000)),
                _ => server.restart_empty(),
            }
        }
        // Only one minority at a time may have forgotten its grants.
        tokio::time::sleep(MAX_TTL + Duration::from_secs(1)).await;
    }
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// The first violation that begins so, and its seed.
fn search(seeds: u64, rules: Rules, wanted: &[&str]) -> Option<(u64, String)> {
    let (next, found) = (AtomicU64::new(0), std::sync::Mutex::new(None));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || found.lock().unwrap().is_some() {
                        return;
                    }
                    let begins =
                        |v: &String| wanted.is_empty() || wanted.iter().any(|w| v.starts_with(w));
                    if let Some(violation) = run(seed, rules).0.into_iter().find(begins) {
                        *found.lock().unwrap() = Some((seed, violation));
                    }
                }
            });
        }
    });
    found.into_inner().unwrap()
}

#[test]
fn no_schedule_breaks_the_contract() {
    if let Some(seed) = from_environment("LEASES_QUORUM_SEED") {
        let (violations, leases, writes) = run(seed, Rules::default());
        println!("{leases} leases, {writes} writes");
        assert!(violations.is_empty(), "{violations:#?}");
        return;
    }
    let seeds = from_environment("LEASES_QUORUM_SEEDS").unwrap_or(SEEDS);
    let found = search(seeds, Rules::default(), &[]);
    assert!(found.is_none(), "LEASES_QUORUM_SEED={found:?}");
}

#[test]
fn the_schedules_have_leases_in_them() {
    let (mut leases, mut writes) = (0, 0);
    for seed in 0..50 {
        let (_, l, w) = run(seed, Rules::default());
        (leases, writes) = (leases + l, writes + w);
    }
    println!("{leases} leases, {writes} writes");
    assert!(
        leases > 200 && writes > 500,
        "{leases} leases, {writes} writes"
    );
}

/// Those that chance comes upon soon; `rules.rs` has a script for each.
#[test]
fn rules_left_out_are_caught() {
    type Change = fn(&mut Rules);
    let cases: [(&str, Change); 2] = [
        ("quarantine", |r| r.quorum.quarantine = false),
        ("majority", |r| r.quorum.majority = false),
    ];
    for (name, change) in cases {
        let mut rules = Rules::default();
        change(&mut rules);
        let found = search(SEEDS, rules, &["two holders", "tokens do not rise"]);
        println!("without {name}: {found:?}");
        assert!(found.is_some(), "nothing caught the absence of {name}");
    }
}
