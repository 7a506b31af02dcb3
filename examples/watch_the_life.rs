//! Every step of a lease's life, as an observer sees it.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::time::Duration;

use leases::{Event, Leases, MemoryStore};

#[tokio::main]
async fn main() -> Result<(), leases::Error> {
    let leases = Leases::builder(Arc::new(MemoryStore::new()))
        .observer(|event: &Event| println!("{}: {:?}", event.key, event.kind))
        .build();
    let ttl = Duration::from_millis(150);
    let lease = leases.lease("watched").ttl(ttl).acquire().await?;
    let deadline = lease.deadline();
    while lease.deadline() == deadline {
        tokio::time::sleep(ttl / 20).await; // Until the first renewal.
    }
    // Somebody else has to wait until this one is released.
    let (next, released) = tokio::join!(leases.lease("watched").ttl(ttl).acquire(), async {
        tokio::time::sleep(ttl / 10).await;
        lease.release().await
    });
    released?;
    next?.release().await?;
    leases.shutdown(Duration::from_secs(1)).await;
    Ok(())
}
