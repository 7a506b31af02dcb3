//! One run: puts, workers, harm, and the judgement.

mod harm;
mod puts;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use lease_conformance::servers::ServerError;
use lease_core::StoreError;
use lease_queue::{Depth, QueueName, QueueStore};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::check::{Broken, History, Write};
use crate::crew::{Crew, Worker};
use crate::ledger;
use crate::record::{Work, is_at_work};
use crate::story::{Tally, told};
use crate::worker::{Effect, Order, in_transaction};
use harm::{Harm, harms};
use puts::Putting;

/// Far more than a run takes.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks at how far the workers are.
const LOOK: Duration = Duration::from_millis(5);
/// Between two looks whether the queue is empty.
const LOOK_AT_QUEUE: Duration = Duration::from_millis(50);

/// In so many rounds at the latest everything was shown that a run has to show.
const ROUNDS: usize = 4;

/// How many workers are looked at for one that is at work.
const TRIES: usize = 30;

/// Kills a server and has it back, from a random source.
pub(crate) type Server<'a> = &'a dyn Fn(&mut StdRng) -> Result<(), ServerError>;

/// How large a run is.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) effect: Effect,
    pub(crate) ttl: Duration,
    pub(crate) workers: usize,
    pub(crate) groups: usize,
    pub(crate) each: u32,
    pub(crate) kills: usize,
    pub(crate) stops: usize,
    pub(crate) server_kills: usize,
    /// For a run that need not come to its end.
    pub(crate) patience: Duration,
}

impl Plan {
    pub(crate) fn new(effect: Effect) -> Self {
        Self {
            effect,
            ttl: Duration::from_secs(1),
            workers: 8,
            groups: 50,
            each: 100,
            kills: 8,
            stops: 10,
            server_kills: 3,
            patience: PATIENCE,
        }
    }

    fn items(&self) -> usize {
        self.groups * self.each as usize
    }
}

fn from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

/// One round, or as many as fit into the time that is told; each must keep every rule.
/// Who is stopped at what is chance: rounds go on until they have shown everything, and
/// some of them must.
pub(crate) async fn rounds(plan: &Plan, crew: &dyn Crew, server: Option<Server<'_>>) {
    let seconds = from_environment("LEASES_QUEUE_CHAOS_SECONDS").unwrap_or(0);
    let begun = Instant::now();
    let mut seed = seed();
    let mut shown = Tally::default();
    for round in 1.. {
        let (broken, tally) = run(plan, seed, crew, server).await;
        assert!(
            broken.is_empty(),
            "LEASES_QUEUE_CHAOS_SEED={seed}: {}",
            lines(&broken)
        );
        shown = shown.and(tally);
        let lacks = shown.lacks(server.is_some());
        if lacks.is_none() && begun.elapsed() >= Duration::from_secs(seconds) {
            return;
        }
        if let Some(lacks) = lacks {
            assert!(round < ROUNDS, "{lacks} in {ROUNDS} rounds");
            println!("{lacks}: another round");
        }
        seed = seed.wrapping_add(1);
    }
}

pub(crate) fn seed() -> u64 {
    from_environment("LEASES_QUEUE_CHAOS_SEED").unwrap_or_else(rand::random)
}

pub(crate) fn lines(broken: &[Broken]) -> String {
    let lines: Vec<_> = broken.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// One round, and what it showed.
pub(crate) async fn run(
    plan: &Plan,
    seed: u64,
    crew: &dyn Crew,
    server: Option<Server<'_>>,
) -> (Vec<Broken>, Tally) {
    println!("LEASES_QUEUE_CHAOS_SEED={seed}");
    let begun = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let order = Order {
        worker: 0,
        seed,
        url: crew.url(),
        queue: format!("chaos {seed}"),
        ttl_ms: u64::try_from(plan.ttl.as_millis()).unwrap(),
        effect: plan.effect,
        folder: folder.path().to_owned(),
    };
    match plan.effect {
        Effect::InTransaction => in_transaction::make_table(&order.url).await,
        _ => ledger::make(&order.ledger()).await,
    }
    let store = crew.store().await;
    let queue = QueueName::new(&order.queue).unwrap();
    let mut run = Run {
        plan,
        random: StdRng::seed_from_u64(seed),
        crew,
        order,
        workers: Vec::new(),
        store,
        queue,
        begun,
        harmed: Tally::default(),
    };
    let came_to_its_end = run.conduct(server).await;
    let worked = begun.elapsed();
    let (history, tally) = run.left_behind().await;
    let mut broken = history.broken();
    if came_to_its_end.is_err() {
        println!("it did not come to its end");
    }
    println!(
        "{worked:?}, {:?} with the judgement: {tally:?}",
        begun.elapsed()
    );
    broken.dedup();
    (broken, tally)
}

/// A worker, and until when it stands still.
struct Post {
    worker: Box<dyn Worker>,
    seen: PathBuf,
    still_until: Option<Instant>,
}

struct Run<'a> {
    plan: &'a Plan,
    random: StdRng,
    crew: &'a dyn Crew,
    order: Order,
    workers: Vec<Post>,
    store: Arc<dyn QueueStore>,
    queue: QueueName,
    begun: Instant,
    harmed: Tally,
}

impl Run<'_> {
    fn hire(&mut self) -> Post {
        self.order.worker += 1;
        Post {
            worker: self.crew.hire(self.order.clone()),
            seen: self.order.seen(),
            still_until: None,
        }
    }

    /// How many items were worked on, but for a few of workers that were killed.
    fn progress(&self) -> usize {
        let file = std::fs::metadata(self.order.folder.join("progress"));
        file.map_or(0, |file| usize::try_from(file.len()).unwrap())
    }

    /// Until every item is completed, or the patience is over.
    async fn conduct(&mut self, server: Option<Server<'_>>) -> Result<(), ()> {
        for _ in 0..self.plan.workers {
            let post = self.hire();
            self.workers.push(post);
        }
        let mut harms = harms(self.plan, server.is_some(), &mut self.random);
        let putting = Putting::start(self.plan, &self.store, &self.queue);
        let mut looked = Instant::now();
        loop {
            let done = self.progress();
            putting.done(done);
            while let Some(harm) = harms.pop_if(|harm| harm.after <= done) {
                self.harm(harm, server);
            }
            self.watch();
            if putting.is_over() && harms.is_empty() && looked.elapsed() > LOOK_AT_QUEUE {
                looked = Instant::now();
                if self.depth().await == Some(Depth::default()) {
                    break;
                }
            }
            if self.begun.elapsed() > self.plan.patience {
                self.workers.clear();
                return Err(());
            }
            tokio::time::sleep(LOOK).await;
        }
        for post in &mut self.workers {
            post.worker.go_on();
        }
        for post in &mut self.workers {
            post.worker.dismiss();
        }
        Ok(())
    }

    /// Whoever has stood still for long enough goes on.
    fn watch(&mut self) {
        for post in &mut self.workers {
            post.worker.is_at_work();
            if post.still_until.is_some_and(|until| Instant::now() > until) {
                post.still_until = None;
                post.worker.go_on();
            }
        }
    }

    fn any(&mut self) -> usize {
        self.random.random_range(0..self.workers.len())
    }

    fn harm(&mut self, harm: Harm, server: Option<Server<'_>>) {
        match harm.what {
            harm::What::Kill => {
                let which = self.any();
                self.workers[which].worker.kill();
                self.workers[which] = self.hire();
                self.harmed.workers_killed += 1;
            }
            harm::What::Stop => {
                let which = self.stop_at_work();
                let still = self.plan.ttl.mul_f64(self.random.random_range(1.3..2.2));
                self.workers[which].still_until = Some(Instant::now() + still);
                self.harmed.workers_stopped += 1;
            }
            harm::What::KillServer => {
                if let Some(server) = server {
                    server(&mut self.random).unwrap();
                    self.harmed.servers_killed += 1;
                }
            }
        }
    }

    /// Stops one that is at work on something, so that it comes too late with it; after
    /// a while any.
    fn stop_at_work(&mut self) -> usize {
        for _ in 0..TRIES {
            let which = self.any();
            let post = &mut self.workers[which];
            if post.still_until.is_some() {
                continue;
            }
            post.worker.stop();
            if is_at_work(&post.seen) {
                return which;
            }
            post.worker.go_on();
        }
        let which = self.any();
        self.workers[which].worker.stop();
        which
    }

    /// `None` while the server is away.
    async fn depth(&self) -> Option<Depth> {
        passing(self.store.depth(&self.queue).await)
    }

    async fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for dead in [false, true] {
            let items: Vec<_> = loop {
                let items = self.store.items(&self.queue, dead).try_collect().await;
                if let Some(items) = passing(items) {
                    break items;
                }
            };
            left.extend(items.iter().map(|item| format!("{item:?}")));
        }
        left
    }

    async fn left_behind(self) -> (History, Tally) {
        let folder = self.order.folder.as_path();
        let (claims, told) = told(folder);
        let (journal, effects) = self.written(&self.order.ledger()).await;
        let history = History {
            groups: self.plan.groups,
            each: self.plan.each,
            claims,
            journal,
            effects,
            left: self.left().await,
        };
        let tally = Tally {
            workers_killed: self.harmed.workers_killed,
            workers_stopped: self.harmed.workers_stopped,
            servers_killed: self.harmed.servers_killed,
            ..told
        };
        let tally = tally.with_journal(&history);
        (history, tally)
    }

    async fn written(&self, path: &Path) -> (Vec<Write>, Vec<Work>) {
        if self.plan.effect == Effect::InTransaction {
            let journal = in_transaction::effects(&self.order.url, &self.order.queue).await;
            let effects = journal.iter().map(|write| write.work).collect();
            return (journal, effects);
        }
        (ledger::journal(path).await, ledger::effects(path).await)
    }
}

/// What a server that is away may answer is asked again.
fn passing<T>(answer: Result<T, StoreError>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(error) => {
            assert!(error.is_transient(), "{error}");
            None
        }
    }
}
