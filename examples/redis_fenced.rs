//! The fenced write on Redis: the token is checked in the script that writes.
//! A holder stands still for longer than its lease lasts, and another one takes
//! over; then the server is killed outright and started again. What the first
//! one writes when it wakes up is refused all the same.
//!
//! It starts a server of its own, by the program `redis-server`.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use lease_conformance::servers::redis::{Persistence, RedisServer};
use leases::redis::redis::aio::MultiplexedConnection;
use leases::redis::{RedisGate, redis};
use leases::{AdmitError, Key, Token};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Every grant and every write is on the disk before it is answered.
    let server = RedisServer::builder().persistence(Persistence::AofAlways);
    let server = server.start()?;
    let url = server.url().to_string();

    let first = leases::connect(&url).await?;
    let lease = first
        .lease("account")
        .ttl(Duration::from_millis(300))
        .acquire()
        .await?;
    let zombie = lease.token();
    // What deposits go through. It lives as long as the server does; a
    // `ConnectionManager` of the driver's would reconnect by itself.
    let gate = open_gate(&url).await?;
    deposit(&gate, zombie, "100").await?;
    // From here on nobody renews it, as if its process stood still. (Whether it
    // was lost before that makes no difference.)
    let _ = lease.detach();

    // It waits for as long as the first one's lease still lasts at the store.
    let second = leases::connect(&url).await?;
    let lease = second.lease("account").acquire().await?;
    println!("took over with token {}", lease.token());
    deposit(&gate, lease.token(), "110").await?;

    // The server is killed (kill -9) and comes back with its data: the gate
    // still knows whom it admitted.
    server.kill()?;
    server.start()?;
    let gate = open_gate(&url).await?;
    match deposit(&gate, zombie, "1000").await {
        Err(AdmitError::Stale(stale)) => println!("refused: {stale}"),
        Err(other) => return Err(other.into()),
        Ok(()) => return Err("a stale write went through".into()),
    }
    // The second one's lease survived as well.
    let token = lease.check()?;
    deposit(&gate, token, "120").await?;
    let balance = server.command(&["GET", "balance:{account}"])?;
    println!("balance {}", balance.text().unwrap_or("none"));
    assert_eq!(balance.text(), Some("120"));
    lease.release().await?;
    Ok(())
}

type Gate = RedisGate<MultiplexedConnection>;

async fn open_gate(url: &str) -> Result<Gate, redis::RedisError> {
    let client = redis::Client::open(url)?;
    let connection = client.get_multiplexed_async_connection().await?;
    Ok(RedisGate::new(connection))
}

/// The check and the write are one script: nothing can come between them.
async fn deposit(gate: &Gate, token: Token, balance: &str) -> Result<(), AdmitError> {
    let account = Key::new("account").map_err(leases::StoreError::from)?;
    gate.set(&account, token, "balance:{account}", balance)
        .await
}
