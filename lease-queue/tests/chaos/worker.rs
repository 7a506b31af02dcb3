//! A worker: takes items, applies their effects, and ends well or badly.

pub(crate) mod in_transaction;

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lease_queue::nats::NatsOptions;
use lease_queue::postgres::PostgresQueues;
use lease_queue::redis::RedisQueues;
use lease_queue::{Backoff, Job, Queue, QueueStore};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;

use crate::ledger::{Ledger, Writer, Written};
use crate::record::{Record, Seen, Work};
use crate::witness::Witness;

/// How many items a worker has at a time.
const AT_ONCE: usize = 3;
/// The longest that an item's work takes by itself, in microseconds.
const WORK_US: u64 = 24_000;

/// Where the items' effects go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Effect {
    /// To the ledger, under the claim's token.
    Ledger,
    /// To a ledger that asks for no token, to show that it must.
    OpenLedger,
    /// To the database of the queue, in the transaction that completes the item.
    InTransaction,
}

/// What a worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) worker: u32,
    pub(crate) seed: u64,
    /// Of the store, where it has one.
    pub(crate) url: String,
    pub(crate) queue: String,
    pub(crate) ttl_ms: u64,
    pub(crate) effect: Effect,
    pub(crate) folder: PathBuf,
}

impl Order {
    pub(crate) fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }

    /// Where this worker writes down what it sees.
    pub(crate) fn seen(&self) -> PathBuf {
        self.folder.join(format!("{}.seen", self.worker))
    }

    fn record(&self) -> Arc<Record> {
        Arc::new(Record::open(&self.seen()))
    }

    fn queue(&self, store: Arc<dyn QueueStore>) -> Queue<Work> {
        let queue = Queue::builder(store, &self.queue)
            .ttl(Duration::from_millis(self.ttl_ms))
            .label(format!("worker {}", self.worker))
            .unlimited_attempts()
            .backoff(Backoff::new(
                Duration::from_millis(1),
                Duration::from_millis(10),
            ));
        queue.build().unwrap()
    }

    /// How long an item's work takes.
    fn takes(&self, work: Work, attempt: u32) -> Duration {
        let item = (work.group as u64) << 40 | u64::from(work.number) << 8 | u64::from(attempt);
        let mut random = StdRng::seed_from_u64(self.seed ^ item);
        Duration::from_micros(random.random_range(0..WORK_US))
    }
}

/// One byte for each item whose effect was applied, for whoever watches.
struct Progress(File);

impl Progress {
    fn of(order: &Order) -> Self {
        let path = order.folder.join("progress");
        Self(
            File::options()
                .create(true)
                .append(true)
                .open(path)
                .unwrap(),
        )
    }

    fn more(&self) {
        (&self.0).write_all(b".").unwrap();
    }
}

/// Opens the store of this URL, for as long as that takes.
pub(crate) async fn opened(url: &str) -> Arc<dyn QueueStore> {
    loop {
        let opened = match url.split("://").next().unwrap() {
            "queue+redis" => {
                let store = RedisQueues::open(RedisQueues::options(url).unwrap()).await;
                store.map(|store| Arc::new(store) as Arc<dyn QueueStore>)
            }
            "queue+postgres" => {
                let store = PostgresQueues::open(PostgresQueues::options(url).unwrap()).await;
                store.map(|store| Arc::new(store) as Arc<dyn QueueStore>)
            }
            "nats" => {
                let store = NatsOptions::from_url(url).unwrap().open().await;
                store.map(|store| Arc::new(store) as Arc<dyn QueueStore>)
            }
            other => panic!("no store is opened by {other}"),
        };
        match opened {
            Ok(store) => return store,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Works as it was told, until it is stopped.
pub(crate) async fn work(order: Order, stop: CancellationToken) {
    match order.effect {
        Effect::InTransaction => in_transaction::work(order, stop).await,
        _ => {
            let store = opened(&order.url).await;
            work_on(order, store, stop).await;
        }
    }
}

/// What the handlers of a worker share.
struct Shop {
    order: Order,
    ledger: Ledger,
    record: Arc<Record>,
    progress: Progress,
}

/// Works on a store that is open.
pub(crate) async fn work_on(order: Order, store: Arc<dyn QueueStore>, stop: CancellationToken) {
    let fenced = order.effect == Effect::Ledger;
    let shop = Arc::new(Shop {
        ledger: Ledger::open(&order.ledger(), fenced),
        record: order.record(),
        progress: Progress::of(&order),
        order,
    });
    let witness = Witness::of(store, Arc::clone(&shop.record));
    let queue = shop.order.queue(witness);
    // Writes outlive their handlers.
    let writes = Arc::new(RwLock::new(()));
    let handler = {
        let writes = Arc::clone(&writes);
        move |work: Work, job: Job| {
            let (shop, writes) = (Arc::clone(&shop), Arc::clone(&writes));
            async move {
                job.lease().check().map_err(|lost| lost.to_string())?;
                let by = Writer {
                    worker: shop.order.worker,
                    token: job.token(),
                    attempt: job.attempt(),
                };
                // Once begun it goes to its end, whatever becomes of the claim: as of
                // code that blocks, or a request that is under way.
                let write = tokio::spawn(async move {
                    let _writing = writes.read().await;
                    shop.apply(work, by).await
                });
                match write.await.map_err(|failed| failed.to_string())? {
                    Written::Applied => Ok(()),
                    Written::Refused => Err("its token is stale".to_owned()),
                }
            }
        }
    };
    let report = queue.worker(AT_ONCE).stop_with(stop).run(handler).await;
    let all = writes.write().await;
    queue.shutdown(Duration::from_secs(5)).await;
    drop(all);
    report.unwrap();
}

impl Shop {
    async fn apply(&self, work: Work, by: Writer) -> Written {
        let token = by.token.get();
        self.record.note(&Seen::Begun { work, token });
        tokio::time::sleep(self.order.takes(work, by.attempt)).await;
        let written = self.ledger.write(work, by).await;
        let refused = written == Written::Refused;
        self.record.note(&Seen::Over {
            work,
            token,
            refused,
        });
        if !refused {
            self.progress.more();
        }
        written
    }
}
