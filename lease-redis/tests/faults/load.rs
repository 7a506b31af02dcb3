//! Several clients on a few keys, while a test does harm; and the judgement of
//! what their handles saw.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lease_core::{Error, Lease, LeaseBackend, Leases, RefusedReason, SystemClock};
use lease_redis::RedisOptions;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::task::JoinHandle;

use crate::holder::{Seen, Shared, Worker, key};
use crate::support::{PATIENCE, from_environment};

pub(crate) const KEYS: usize = 3;
const TASKS_PER_CLIENT: usize = 3;
const SECONDS: u64 = 3;

/// How long the harm lasts.
pub(crate) fn length() -> Duration {
    Duration::from_secs(from_environment("LEASES_REDIS_FAULT_SECONDS").unwrap_or(SECONDS))
}

/// One run.
pub(crate) struct Load {
    seed: u64,
    ttls_ms: RangeInclusive<u64>,
    started: Instant,
    stop: Arc<AtomicBool>,
    shared: Arc<Shared>,
    clients: Vec<Leases>,
    tasks: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the clients; each of these options makes one.
    pub(crate) async fn start(ttls_ms: RangeInclusive<u64>, options: Vec<RedisOptions>) -> Self {
        let mut stores: Vec<Arc<dyn LeaseBackend>> = Vec::new();
        for options in options {
            stores.push(Arc::new(options.open().await.unwrap()));
        }
        Self::start_on(ttls_ms, stores)
    }

    /// Starts a client of each of these stores.
    pub(crate) fn start_on(
        ttls_ms: RangeInclusive<u64>,
        stores: Vec<Arc<dyn LeaseBackend>>,
    ) -> Self {
        let seed = from_environment("LEASES_REDIS_FAULT_SEED").unwrap_or_else(rand::random);
        let seconds = length().as_secs();
        println!("LEASES_REDIS_FAULT_SEED={seed} LEASES_REDIS_FAULT_SECONDS={seconds}");
        let mut load = Self {
            seed,
            ttls_ms,
            started: Instant::now(),
            stop: Arc::default(),
            shared: Arc::new(Shared::new()),
            clients: Vec::new(),
            tasks: Vec::new(),
        };
        for store in stores {
            let leases = Leases::builder(store)
                .clock(Arc::new(SystemClock::new()))
                .build();
            for _ in 0..TASKS_PER_CLIENT {
                load.employ(leases.clone());
            }
            load.clients.push(leases);
        }
        load
    }

    fn employ(&mut self, leases: Leases) {
        let number = self.tasks.len() as u64;
        let worker = Worker {
            leases,
            shared: Arc::clone(&self.shared),
            random: StdRng::seed_from_u64(self.seed ^ (number << 32)),
            ttls_ms: self.ttls_ms.clone(),
        };
        let stop = Arc::clone(&self.stop);
        self.tasks.push(tokio::spawn(worker.work(stop)));
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

    /// Ends the run, and judges it: no two holders at once if it is to be
    /// `exclusive`, rising tokens in any case. The server must be well again.
    pub(crate) async fn end(self, exclusive: bool) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            tokio::time::timeout(PATIENCE, task).await.unwrap().unwrap();
        }
        // Nothing that was dropped or given up blocks a key for ever.
        for number in 0..KEYS {
            let ttl = Duration::from_millis(*self.ttls_ms.end());
            let lease = granted(&self.clients[0], number, ttl).await;
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
        let seen = self.shared.seen();
        let holdings = &self.shared.holdings;
        let (exclusion, order) = (holdings.are_exclusive(), holdings.tokens_rise());
        println!("{seen:?}; exclusive: {exclusion:?}");
        let judged = if exclusive { exclusion } else { order };
        if let Err(found) = judged {
            panic!("seed {}: {found}", self.seed);
        }
        assert!(seen.grants > KEYS, "{seen:?}");
        seen
    }
}

/// Acquires as one does who has patience with a store that was away.
async fn granted(leases: &Leases, number: usize, ttl: Duration) -> Lease {
    let started = Instant::now();
    loop {
        let acquire = leases.lease(key(number)).ttl(ttl).wait(PATIENCE);
        match acquire.acquire().await {
            Ok(lease) => return lease,
            Err(Error::Refused {
                reason: RefusedReason::Quarantine { remaining },
                ..
            }) => tokio::time::sleep(remaining).await,
            Err(Error::Store(e)) if e.is_transient() => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(e) => panic!("{number}: {e}"),
        }
        assert!(started.elapsed() < PATIENCE, "{number} is never free");
    }
}
