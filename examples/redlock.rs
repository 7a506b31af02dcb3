//! A quorum of three Redis servers: it is opened, a lease is held while one of them
//! is killed, and a holder that stands still for too long is fenced off by the token.
//!
//! It starts servers of its own, by the program `redis-server`.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use lease_conformance::servers::redis::{RedisNodes, RedisServer};
use leases::redis::RedlockOptions;
use leases::{AdmitError, Key};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let nodes = RedisNodes::start(3, &RedisServer::builder())?;
    let url = format!("redlock://{}", nodes.hosts());

    // Once, by hand, when it is new: `lease quorum init --store redlock://…`.
    // Otherwise the first grant waits for as long as the longest TTL, since a new
    // server looks like one that has forgotten everything.
    let report = RedlockOptions::from_url(&url)?.init().await?;
    for node in &report.nodes {
        println!("{} {}", node.name, node.state);
    }
    assert!(report.is_done());

    let store = leases::open(&url).await?;
    let leases = store.leases().build();
    let lease = leases
        .lease("account")
        .ttl(Duration::from_millis(900))
        .acquire()
        .await?;
    let zombie = lease.token();
    println!("acquired with token {zombie}, which two of three servers agree on");

    // One server dies; the lease is renewed on the other two.
    nodes.servers()[0].kill()?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    println!("still held with token {}", lease.check()?);
    let account = Key::new("account")?;
    store.gate().admit(&account, zombie).await?;

    // From here on nobody renews it, as if its process stood still.
    let _ = lease.detach();
    // Another client, which never saw the server that died.
    let other = leases::open(&url).await?;
    let next = other.leases().build().lease("account").acquire().await?;
    println!("taken over with token {}", next.token());
    other.gate().admit(&account, next.token()).await?;

    // The first one wakes up and writes: too late.
    match store.gate().admit(&account, zombie).await {
        Err(AdmitError::Stale(stale)) => println!("refused: {stale}"),
        Err(other) => return Err(other.into()),
        Ok(()) => return Err("a stale write went through".into()),
    }
    next.release().await?;
    Ok(())
}
