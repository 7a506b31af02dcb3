//! The lease and the data that it guards in one Postgres transaction. A holder stops
//! for longer than its lease lasts: while its transaction holds the lease, nobody
//! takes it over; afterwards it can commit nothing.
//!
//! It starts a server of its own, by Postgres's programs.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Duration;

use lease_conformance::servers::postgres::PostgresServer;
use lease_postgres::PostgresOptions;
use lease_postgres::sqlx::{PgPool, query, query_scalar};
use leases::{AdmitError, Error, Key, Leases};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = PostgresServer::builder().start()?;
    let pool = PgPool::connect(&server.url().to_string()).await?;
    query("CREATE TABLE account (balance bigint)")
        .execute(&pool)
        .await?;
    query("INSERT INTO account VALUES (0)")
        .execute(&pool)
        .await?;

    let store = PostgresOptions::from_pool(&pool).open().await?;
    let guard = store.in_transaction();
    let leases = Leases::new(Arc::new(store));
    let account = Key::new("account")?;

    let lease = leases
        .lease("account")
        .ttl(Duration::from_millis(300))
        .acquire()
        .await?;
    let mut tx = pool.begin().await?;
    guard.hold(&mut tx, &lease).await?;
    // From here on nobody renews it, as if its process stood still.
    let zombie = lease.detach()?;
    let others = leases.clone();
    let mut waiter = tokio::spawn(async move { others.lease("account").acquire().await });
    let early = tokio::time::timeout(Duration::from_millis(800), &mut waiter).await;
    assert!(early.is_err(), "nobody takes over what a transaction holds");
    guard.admit(&mut tx, &account, zombie.token).await?;
    query("UPDATE account SET balance = balance + 100")
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    println!("committed under the lease, past its time");

    let lease = waiter.await??;
    println!("took over with token {}", lease.token());
    let mut tx = pool.begin().await?;
    guard.hold(&mut tx, &lease).await?;
    guard.admit(&mut tx, &account, lease.token()).await?;
    query("UPDATE account SET balance = balance + 10")
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;

    // The first one wakes up once more, and is refused both ways.
    let mut tx = pool.begin().await?;
    match guard
        .hold_grant(&mut tx, &zombie.key, zombie.owner, zombie.token)
        .await
    {
        Err(Error::Lost(lost)) => println!("refused: {lost}"),
        Err(other) => return Err(other.into()),
        Ok(()) => return Err("a lost lease was held".into()),
    }
    tx.rollback().await?;
    let mut tx = pool.begin().await?;
    match guard.admit(&mut tx, &account, zombie.token).await {
        Err(AdmitError::Stale(stale)) => println!("refused: {stale}"),
        Err(other) => return Err(other.into()),
        Ok(()) => return Err("a stale token was admitted".into()),
    }
    tx.rollback().await?;
    let balance: i64 = query_scalar("SELECT balance FROM account")
        .fetch_one(&pool)
        .await?;
    println!("balance {balance}");
    assert_eq!(balance, 110);
    lease.release().await?;
    Ok(())
}
