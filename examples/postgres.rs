//! A job under a lease in the application's own Postgres database. A holder stands
//! still for longer than its lease lasts, and another one takes over; then the server
//! is killed outright and started again. What the first one writes when it wakes up
//! is refused all the same, by a fence in the same database.
//!
//! It starts a server of its own, by the programs of Postgres.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use lease_conformance::servers::postgres::PostgresServer;
use leases::{AdmitError, Key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = PostgresServer::builder().start()?;
    // Like "postgres://app:secret@db.example/app". The store makes its tables, in
    // the schema `public` unless the URL names another.
    let url = server.url().to_string();

    let first = leases::open(&url).await?;
    let lease = first
        .leases()
        .build()
        .lease("reports/daily")
        .ttl(Duration::from_millis(900))
        .acquire()
        .await?;
    let zombie = lease.token();
    println!("acquired with token {zombie}");
    // Whoever is about to write shows its token first: at each place the highest
    // one counts from then on.
    let report = Key::new("report")?;
    first.gate().admit(&report, zombie).await?;
    // From here on nobody renews it, as if its process stood still.
    let _ = lease.detach();

    // It waits for as long as the first one's lease still lasts at the server.
    let second = leases::open(&url).await?;
    let lease = second
        .leases()
        .build()
        .lease("reports/daily")
        .acquire()
        .await?;
    println!("taken over with token {}", lease.token());
    second.gate().admit(&report, lease.token()).await?;

    // The server is killed (kill -9) and comes back: what was answered was on its
    // disk.
    server.kill()?;
    server.start()?;
    match first.gate().admit(&report, zombie).await {
        Err(AdmitError::Stale(stale)) => println!("refused: {stale}"),
        Err(other) => return Err(other.into()),
        Ok(()) => return Err("a stale write went through".into()),
    }
    // The second one's lease survived as well.
    println!("still held with token {}", lease.check()?);
    lease.release().await?;
    Ok(())
}
