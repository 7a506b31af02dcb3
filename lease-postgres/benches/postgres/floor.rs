//! The floors: the least that a fenced lease in a table can be, on connections that
//! are held, and through the driver's pool; and its advisory lock, which is no
//! lease.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use lease_conformance::bench::{Contestant, Laps, Runner, laps};
use lease_core::Owner;
use lease_postgres::sqlx::postgres::{PgAdvisoryLock, PgPoolOptions};
use lease_postgres::sqlx::{self, Connection as _, PgConnection, PgPool};
use tokio::sync::{Mutex, MutexGuard};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS bare_leases (
    key text PRIMARY KEY, fence bigint NOT NULL, owner bytea, expires_at timestamptz NOT NULL
) WITH (fillfactor = 60)";
const TAKE: &str = "
    INSERT INTO bare_leases AS l (key, fence, owner, expires_at)
    VALUES ($1, 1, $2, clock_timestamp() + interval '30 s')
    ON CONFLICT (key) DO UPDATE SET fence = l.fence + 1, owner = excluded.owner,
        expires_at = clock_timestamp() + interval '30 s'
    WHERE l.expires_at < clock_timestamp()
    RETURNING fence";
const PROLONG: &str = "
    UPDATE bare_leases SET expires_at = clock_timestamp() + interval '30 s'
    WHERE key = $1 AND owner = $2 AND expires_at >= clock_timestamp()";
const GIVE: &str = "
    UPDATE bare_leases SET expires_at = '-infinity', owner = NULL WHERE key = $1 AND owner = $2";

/// Upserts on connections that are held.
pub(crate) struct Bare {
    connections: Vec<Mutex<PgConnection>>,
    freed: tokio::sync::Semaphore,
}

impl Bare {
    pub(crate) async fn new(url: &str, connections: usize) -> Self {
        let mut all = Vec::new();
        for _ in 0..connections {
            let mut one = PgConnection::connect(url).await.unwrap();
            sqlx::query(TABLE).execute(&mut one).await.unwrap();
            all.push(Mutex::new(one));
        }
        Self {
            freed: tokio::sync::Semaphore::new(all.len()),
            connections: all,
        }
    }

    fn idle(&self) -> MutexGuard<'_, PgConnection> {
        let mut all = self.connections.iter();
        all.find_map(|one| one.try_lock().ok()).unwrap()
    }
}

async fn take(db: &mut PgConnection, key: &str, owner: &[u8]) {
    let taken = sqlx::query_scalar::<_, i64>(TAKE).bind(key).bind(owner);
    assert!(taken.fetch_one(db).await.unwrap() > 0);
}

async fn prolong(db: &mut PgConnection, key: &str, owner: &[u8]) {
    let prolonged = sqlx::query(PROLONG).bind(key).bind(owner).execute(db);
    assert_eq!(prolonged.await.unwrap().rows_affected(), 1);
}

async fn give(db: &mut PgConnection, key: &str, owner: &[u8]) {
    let given = sqlx::query(GIVE).bind(key).bind(owner).execute(db).await;
    assert_eq!(given.unwrap().rows_affected(), 1);
}

#[async_trait]
impl Contestant for Bare {
    fn name(&self) -> String {
        format!("bare upsert, {} held connections", self.connections.len())
    }

    async fn pair(&self, key: &str, _renew: bool) {
        let owner = *Owner::random().unwrap().as_bytes();
        {
            let _turn = self.freed.acquire().await.unwrap();
            take(&mut self.idle(), key, &owner).await;
        }
        let _turn = self.freed.acquire().await.unwrap();
        give(&mut self.idle(), key, &owner).await;
    }
}

#[async_trait]
impl Runner for Bare {
    fn name(&self) -> String {
        "bare upsert, a held connection".to_owned()
    }

    async fn life(&self, key: &str) -> Laps {
        let owner = *Owner::random().unwrap().as_bytes();
        let mut db = self.idle();
        let start = Instant::now();
        take(&mut db, key, &owner).await;
        let acquired = Instant::now();
        prolong(&mut db, key, &owner).await;
        let renewed = Instant::now();
        give(&mut db, key, &owner).await;
        laps([start, acquired, renewed, Instant::now()])
    }
}

async fn pool(url: &str) -> PgPool {
    let options = PgPoolOptions::new().max_connections(10);
    let options = options.acquire_timeout(Duration::from_secs(60));
    options.connect(url).await.unwrap()
}

/// The same through the driver's pool, as most would write it.
pub(crate) struct Pool(PgPool);

impl Pool {
    pub(crate) async fn new(url: &str) -> Self {
        Self(pool(url).await)
    }
}

#[async_trait]
impl Contestant for Pool {
    fn name(&self) -> String {
        "bare upsert, sqlx's pool of ten".to_owned()
    }

    async fn pair(&self, key: &str, _renew: bool) {
        let owner = *Owner::random().unwrap().as_bytes();
        take(&mut self.0.acquire().await.unwrap(), key, &owner).await;
        give(&mut self.0.acquire().await.unwrap(), key, &owner).await;
    }
}

/// No lease, no fence, and a connection for each lock that is held.
pub(crate) struct Advisory(PgPool);

impl Advisory {
    pub(crate) async fn new(url: &str) -> Self {
        Self(pool(url).await)
    }
}

#[async_trait]
impl Contestant for Advisory {
    fn name(&self) -> String {
        "sqlx's PgAdvisoryLock, pool of ten (no lease, no fence)".to_owned()
    }

    async fn pair(&self, key: &str, _renew: bool) {
        let lock = PgAdvisoryLock::new(key);
        let db = self.0.acquire().await.unwrap();
        let held = lock.acquire(db).await.unwrap();
        held.release_now().await.unwrap();
    }
}
