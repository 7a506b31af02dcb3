//! The floor on Postgres: a claim by SKIP LOCKED and a conditional delete, the least
//! that can be, on connections that are held.

use async_trait::async_trait;
use lease_conformance::bench::{Drained, by_tasks};
use lease_core::Owner;
use lease_postgres::sqlx::{self, Connection as _, PgConnection};
use tokio::sync::{Mutex, MutexGuard, Semaphore};

use crate::ours::BODY;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS bare_items (
        id bigserial PRIMARY KEY, body bytea NOT NULL, ready timestamptz NOT NULL DEFAULT now(),
        attempts int NOT NULL DEFAULT 0, owner bytea, token bigint
    );
    CREATE INDEX IF NOT EXISTS bare_ready ON bare_items (ready, id);
    CREATE SEQUENCE IF NOT EXISTS bare_tokens";
const CLAIM: &str = "
    UPDATE bare_items SET owner = $1, token = nextval('bare_tokens'), attempts = attempts + 1,
        ready = clock_timestamp() + interval '30 s'
    WHERE id = (
        SELECT id FROM bare_items WHERE ready <= now() ORDER BY ready, id LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) RETURNING id, token, body";
const COMPLETE: &str = "
    DELETE FROM bare_items
    WHERE id = $1 AND owner = $2 AND token = $3 AND ready > clock_timestamp()";

pub(crate) struct Bare {
    connections: Vec<Mutex<PgConnection>>,
    freed: Semaphore,
}

impl Bare {
    pub(crate) async fn new(url: &str, connections: usize) -> Self {
        let mut all = Vec::new();
        for _ in 0..connections {
            let mut one = PgConnection::connect(url).await.unwrap();
            sqlx::raw_sql(TABLES).execute(&mut one).await.unwrap();
            all.push(Mutex::new(one));
        }
        Self {
            freed: Semaphore::new(all.len()),
            connections: all,
        }
    }

    fn idle(&self) -> MutexGuard<'_, PgConnection> {
        let mut all = self.connections.iter();
        all.find_map(|one| one.try_lock().ok()).unwrap()
    }

    async fn pair(&self) {
        let owner = *Owner::random().unwrap().as_bytes();
        let (id, token): (i64, i64) = {
            let _turn = self.freed.acquire().await.unwrap();
            let claim = sqlx::query_as::<_, (i64, i64, Vec<u8>)>(CLAIM).bind(&owner[..]);
            let (id, token, body) = claim.fetch_one(&mut *self.idle()).await.unwrap();
            assert_eq!(body, BODY);
            (id, token)
        };
        let _turn = self.freed.acquire().await.unwrap();
        let complete = sqlx::query(COMPLETE).bind(id).bind(&owner[..]).bind(token);
        let done = complete.execute(&mut *self.idle()).await.unwrap();
        assert_eq!(done.rows_affected(), 1);
    }
}

#[async_trait]
impl Drained for Bare {
    fn name(&self) -> String {
        format!(
            "bare SKIP LOCKED, {} held connections",
            self.connections.len()
        )
    }

    async fn fill(&self, items: usize) {
        let put = "INSERT INTO bare_items (body) SELECT $1 FROM generate_series(1, $2)";
        let put = sqlx::query(put).bind(BODY).bind(items as i64);
        put.execute(&mut *self.idle()).await.unwrap();
    }

    async fn drain(&self, tasks: usize, items: usize) -> Vec<f64> {
        by_tasks(tasks, items, || self.pair()).await
    }
}
