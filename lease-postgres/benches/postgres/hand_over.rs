//! From a releasing holder to a waiter of another client.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lease_conformance::bench::median;
use lease_core::{Key, Leases};
use lease_postgres::sqlx::postgres::PgListener;
use lease_postgres::sqlx::{self, Connection as _, PgConnection};

use crate::contestants::{TTL, store};

const IDLE: Duration = Duration::from_millis(10);
const GIVE: &str = "UPDATE raw_leases SET owner = NULL WHERE key = 'raw'";
const TAKE: &str = "UPDATE raw_leases SET owner = 1 WHERE key = 'raw' AND owner IS NULL";

/// From the call of the release to the waiter's grant.
pub(crate) async fn run(url: &str, times: usize) {
    let from = Leases::new(Arc::new(store(url, false).await));
    let to = Leases::new(Arc::new(store(url, false).await));
    let key = Key::new("handed/over").unwrap();
    let mut raw = Raw::new(url).await;
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..times {
        bare.push(raw.hand_over().await);
        let lease = from.lease(&key).ttl(TTL).acquire().await.unwrap();
        let waiter = tokio::spawn({
            let waiting = to.lease(&key).ttl(TTL).acquire();
            async move { (waiting.await.unwrap(), Instant::now()) }
        });
        // Until it sleeps: nothing that it does shows that from outside.
        tokio::time::sleep(IDLE).await;
        let start = Instant::now();
        lease.release().await.unwrap();
        let (next, end) = waiter.await.unwrap();
        ours.push((end - start).as_secs_f64() * 1e6);
        next.release().await.unwrap();
    }
    let (bare, ours) = (median(&bare), median(&ours));
    println!("{:58} {bare:8.0} µs", "raw: UPDATE and NOTIFY, then UPDATE");
    println!(
        "{:58} {ours:8.0} µs  x {:4.2}",
        "lease-postgres, through Leases",
        ours / bare
    );
}

struct Raw {
    giver: PgConnection,
    taker: PgConnection,
    listener: PgListener,
}

impl Raw {
    async fn new(url: &str) -> Self {
        let mut giver = PgConnection::connect(url).await.unwrap();
        let taker = PgConnection::connect(url).await.unwrap();
        for sql in [
            "CREATE TABLE IF NOT EXISTS raw_leases (key text PRIMARY KEY, owner bigint)",
            "INSERT INTO raw_leases VALUES ('raw') ON CONFLICT DO NOTHING",
        ] {
            sqlx::query(sql).execute(&mut giver).await.unwrap();
        }
        let mut listener = PgListener::connect(url).await.unwrap();
        listener.listen("raw").await.unwrap();
        Self {
            giver,
            taker,
            listener,
        }
    }

    async fn hand_over(&mut self) -> f64 {
        sqlx::query(TAKE).execute(&mut self.taker).await.unwrap();
        // As long as ours is idle before.
        tokio::time::sleep(IDLE).await;
        let start = Instant::now();
        let give = async {
            let mut both = self.giver.begin().await.unwrap();
            sqlx::query(GIVE).execute(&mut *both).await.unwrap();
            let told = sqlx::query("SELECT pg_notify('raw', '')");
            told.execute(&mut *both).await.unwrap();
            both.commit().await.unwrap();
        };
        let take = async {
            self.listener.recv().await.unwrap();
            let took = sqlx::query(TAKE).execute(&mut self.taker).await.unwrap();
            assert_eq!(took.rows_affected(), 1);
            Instant::now()
        };
        let ((), end) = futures_util::future::join(give, take).await;
        (end - start).as_secs_f64() * 1e6
    }
}
