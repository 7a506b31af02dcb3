//! pgmq by its own client, with the SQL that it brings: a read and a delete by number
//! alone, which a late reader's delete passes as well.

use async_trait::async_trait;
use lease_conformance::bench::{Drained, by_tasks};
use lease_postgres::sqlx::postgres::PgPoolOptions;
use pgmq::PGMQueueExt;
use pgmq::types::Message;

const QUEUE: &str = "bench";

pub(crate) struct Pgmq(PGMQueueExt);

impl Pgmq {
    pub(crate) async fn new(url: &str) -> Self {
        let pool = PgPoolOptions::new().max_connections(10);
        let queue = PGMQueueExt::new_with_pool(pool.connect(url).await.unwrap()).await;
        queue.install_sql_from_embedded().await.unwrap();
        queue.create(QUEUE).await.unwrap();
        Self(queue)
    }

    async fn pair(&self) {
        let read: Option<Message<String, Option<String>>> = self.0.read(QUEUE, 30).await.unwrap();
        let deleted = self.0.delete(QUEUE, read.unwrap().msg_id).await.unwrap();
        assert!(deleted);
    }
}

#[async_trait]
impl Drained for Pgmq {
    fn name(&self) -> String {
        "pgmq read + delete, sqlx's pool of ten (no fence)".to_owned()
    }

    async fn fill(&self, items: usize) {
        let bodies = vec!["x".repeat(100); items];
        for batch in bodies.chunks(1000) {
            self.0.send_batch(QUEUE, batch).await.unwrap();
        }
    }

    async fn drain(&self, tasks: usize, items: usize) -> Vec<f64> {
        by_tasks(tasks, items, || self.pair()).await
    }
}
