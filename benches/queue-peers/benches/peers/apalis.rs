//! apalis by its worker, which is its only way to claim and complete: it fetches in
//! batches, of as many as there are tasks here, and tells in batches what is done. So
//! compare it with the worker of lease-queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apalis_core::backend::TaskSink;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use apalis_core::worker::ext::parallelize::ParallelizeExt;
use apalis_postgres::PostgresStorage;
use apalis_redis::RedisStorage;
use async_trait::async_trait;
use lease_conformance::bench::Drained;
use lease_postgres::sqlx::PgPool;
use lease_postgres::sqlx::postgres::PgPoolOptions;
use lease_redis::redis::Client;
use lease_redis::redis::aio::ConnectionManagerConfig;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

fn bodies(items: usize) -> Vec<Vec<String>> {
    let bodies = vec!["x".repeat(100); items];
    bodies.chunks(256).map(<[String]>::to_vec).collect()
}

/// A worker of this name, until it has handled so many.
macro_rules! work {
    ($storage:expr, $items:expr) => {{
        let done = Arc::new(AtomicUsize::new(0));
        let items: usize = $items;
        // No two with one name: it is refused for a while.
        static WORKERS: AtomicUsize = AtomicUsize::new(0);
        let number = WORKERS.fetch_add(1, Ordering::Relaxed);
        let storage = $storage;
        let worker = WorkerBuilder::new(format!("bench-{number}"))
            .backend(storage)
            .parallelize(tokio::spawn)
            .build(move |_body: String, worker: WorkerContext| {
                let done = Arc::clone(&done);
                async move {
                    if done.fetch_add(1, Ordering::Relaxed) + 1 == items {
                        worker.stop().unwrap();
                    }
                }
            });
        // Its future is not known to be `Send` here.
        let runtime = Handle::current();
        let run = spawn_blocking(move || runtime.block_on(worker.run()).unwrap());
        run.await.unwrap();
    }};
}

pub(crate) struct OnRedis(apalis_redis::ConnectionManager);

impl OnRedis {
    pub(crate) async fn new(url: &str) -> Self {
        // On a busy machine the driver's half second is soon over.
        let config = ConnectionManagerConfig::new().set_response_timeout(None);
        let client = Client::open(url).unwrap();
        Self(
            client
                .get_connection_manager_with_config(config)
                .await
                .unwrap(),
        )
    }

    fn storage(&self, tasks: usize) -> RedisStorage<String> {
        let config = apalis_redis::Config::default()
            .queue("bench")
            .batch_size(tasks);
        RedisStorage::new(self.0.clone()).with_config(config)
    }
}

#[async_trait]
impl Drained for OnRedis {
    fn name(&self) -> String {
        "apalis-redis, a worker (no fence)".to_owned()
    }

    async fn fill(&self, items: usize) {
        let mut storage = self.storage(1);
        for batch in bodies(items) {
            storage.push_bulk(batch).await.unwrap();
        }
    }

    async fn drain(&self, tasks: usize, items: usize) -> Vec<f64> {
        work!(self.storage(tasks), items);
        Vec::new()
    }

    /// A script of its own fails from about 8,000 on ("too many results to unpack").
    fn most(&self) -> usize {
        4000
    }
}

pub(crate) struct OnPostgres(PgPool);

impl OnPostgres {
    pub(crate) async fn new(url: &str) -> Self {
        let pool = PgPoolOptions::new().max_connections(10);
        let pool = pool.connect(url).await.unwrap();
        PostgresStorage::setup(&pool).await.unwrap();
        Self(pool)
    }

    fn storage(&self, tasks: usize) -> PostgresStorage<String> {
        let config = apalis_postgres::Config::default()
            .queue("bench")
            .batch_size(tasks);
        PostgresStorage::new(&self.0).with_config(config)
    }
}

#[async_trait]
impl Drained for OnPostgres {
    fn name(&self) -> String {
        "apalis-postgres, a worker (no fence)".to_owned()
    }

    async fn fill(&self, items: usize) {
        let mut storage = self.storage(1);
        for batch in bodies(items) {
            storage.push_bulk(batch).await.unwrap();
        }
    }

    async fn drain(&self, tasks: usize, items: usize) -> Vec<f64> {
        work!(self.storage(tasks), items);
        Vec::new()
    }
}
