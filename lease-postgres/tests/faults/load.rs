//! Several clients on a few keys, while a test does harm; and the judgement of
//! what their handles saw.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lease_conformance::servers::postgres::PostgresUrl;
use lease_core::{Error, Lease, Leases, SystemClock};
use lease_postgres::PostgresOptions;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinHandle;

use crate::worker::{KEYS, Shared, Worker, key};

const TASKS_PER_CLIENT: usize = 3;
const SECONDS: u64 = 3;
/// For what must end, on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(60);

fn from_environment(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}

fn length() -> Duration {
    Duration::from_secs(from_environment("LEASES_POSTGRES_FAULT_SECONDS").unwrap_or(SECONDS))
}

/// One run.
pub(crate) struct Load {
    seed: u64,
    longest: Duration,
    started: Instant,
    stop: Arc<AtomicBool>,
    shared: Arc<Shared>,
    clients: Vec<Leases>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the clients, one for each URL.
    pub(crate) async fn start(
        ttls_ms: RangeInclusive<u64>,
        urls: impl IntoIterator<Item = PostgresUrl>,
    ) -> Self {
        let seed = from_environment("LEASES_POSTGRES_FAULT_SEED").unwrap_or_else(rand::random);
        println!(
            "LEASES_POSTGRES_FAULT_SEED={seed} LEASES_POSTGRES_FAULT_SECONDS={}",
            length().as_secs()
        );
        let mut load = Self {
            seed,
            longest: Duration::from_millis(*ttls_ms.end()),
            started: Instant::now(),
            stop: Arc::default(),
            shared: Arc::new(Shared::new()),
            clients: Vec::new(),
            tasks: Vec::new(),
        };
        for url in urls {
            let options = PostgresOptions::from_url(&url.to_string()).unwrap();
            let store = options.open().await.unwrap();
            let leases = Leases::builder(Arc::new(store))
                .clock(Arc::new(SystemClock::new()))
                .build();
            for _ in 0..TASKS_PER_CLIENT {
                let number = load.tasks.len() as u64;
                let worker = Worker {
                    leases: leases.clone(),
                    shared: Arc::clone(&load.shared),
                    random: StdRng::seed_from_u64(seed ^ (number << 32)),
                    ttls_ms: ttls_ms.clone(),
                };
                let stop = Arc::clone(&load.stop);
                load.tasks.push(tokio::spawn(worker.work(stop)));
            }
            load.clients.push(leases);
        }
        load.started = Instant::now();
        load
    }

    /// For the one who does harm.
    pub(crate) fn random(&self) -> StdRng {
        StdRng::seed_from_u64(!self.seed)
    }

    /// Whether the harm goes on.
    pub(crate) fn goes_on(&self) -> bool {
        assert!(
            !self.tasks.iter().any(JoinHandle::is_finished),
            "a worker ended before its time: see its panic (seed {})",
            self.seed
        );
        self.started.elapsed() < length()
    }

    /// Ends the run, and judges it: no two holders at once, and rising tokens.
    /// The server must be well again.
    pub(crate) async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
        }
        // Nothing that was dropped or given up blocks a key for ever.
        for number in 0..KEYS {
            let lease = granted(&self.clients[0], number, self.longest).await;
            let highest = self.shared.highest(number);
            assert!(
                Some(lease.token()) > highest,
                "{lease:?} is not above {highest:?}"
            );
            lease.release().await.unwrap();
        }
        for client in self.clients {
            client.shutdown(PATIENCE).await;
        }
        let holdings = &self.shared.holdings;
        println!("{:?}", self.shared);
        if let Err(found) = holdings.are_exclusive() {
            panic!("seed {}: {found}", self.seed);
        }
        assert!(holdings.all().len() > KEYS, "{:?}", self.shared);
    }
}

/// Acquires as one does who has patience with a store that was away.
async fn granted(leases: &Leases, number: usize, ttl: Duration) -> Lease {
    let started = Instant::now();
    loop {
        let acquire = leases.lease(key(number)).ttl(ttl).wait(PATIENCE);
        match acquire.acquire().await {
            Ok(lease) => return lease,
            Err(Error::Store(e)) if e.is_transient() => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(e) => panic!("{number}: {e}"),
        }
        assert!(started.elapsed() < PATIENCE, "{number} is never free");
    }
}
