//! Poolers: one that gives each transaction another session is found out and
//! refused, whatever else goes on behind it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lease_conformance::servers::postgres::{PgBouncer, PoolMode};
use lease_core::StoreErrorKind;
use lease_postgres::sqlx::{
    ConnectOptions as _, PgConnection, postgres::PgConnectOptions, raw_sql,
};

use crate::support::{GRACE, LONG, hold, options, server, witnessed};

fn pooler(mode: PoolMode, size: u32) -> PgBouncer {
    let before = PgBouncer::before(server());
    before.pool_mode(mode).pool_size(size).start().unwrap()
}

async fn connect(url: &str) -> PgConnection {
    let options: PgConnectOptions = url.parse().unwrap();
    options.extra_float_digits(None).connect().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_moves_transactions_is_refused() {
    let pooler = tokio::task::block_in_place(|| pooler(PoolMode::Transaction, 8));
    let url = pooler.url().to_string();
    let refused = options(&url, "pooled").crash_detection(GRACE).open().await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Refusing, "{refused}");
    assert!(refused.to_string().contains("pooler"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_pooler_that_moves_transactions_is_refused() {
    let pooler = tokio::task::block_in_place(|| pooler(PoolMode::Transaction, 8));
    let url = pooler.url().to_string();
    let stop = Arc::new(AtomicBool::new(false));
    let mut busy = Vec::new();
    for _ in 0..6 {
        let (mut db, stop) = (connect(&url).await, Arc::clone(&stop));
        busy.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                raw_sql("SELECT pg_sleep(0.002)")
                    .execute(&mut db)
                    .await
                    .unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }));
    }
    for _ in 0..10 {
        let refused = options(&url, "busy").crash_detection(GRACE).open().await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Refusing, "{refused}");
        assert!(refused.to_string().contains("pooler"), "{refused}");
    }
    stop.store(true, Ordering::Relaxed);
    for task in busy {
        task.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_keeps_sessions_is_none_for_this() {
    let pooler = tokio::task::block_in_place(|| pooler(PoolMode::Session, 20));
    let leases = witnessed(&pooler.url().to_string(), "sessions").await;
    let lease = hold(&leases, "k").await;
    tokio::time::sleep(GRACE * 2).await;
    lease.check().unwrap();
    assert!(lease.ttl().get() == LONG);
}
