//! Leader election: campaign, lead until the lease is lost, campaign again.
#![allow(clippy::print_stdout)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leases::{FenceWhen, Leases, MemoryStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(MemoryStore::new());
    let terms = Arc::new(AtomicU32::new(0));
    let candidates: Vec<_> = ["red", "blue"]
        .map(|name| {
            let leases = Leases::new(Arc::clone(&store) as _);
            tokio::spawn(campaign(name, leases, Arc::clone(&terms)))
        })
        .into();

    // An operator deposes the leader twice.
    let operator = Leases::new(store);
    let mut deposed = None;
    for _ in 0..2 {
        let token = loop {
            let leader = operator.inspect("leader").await?.holder;
            if let Some(leader) = leader.filter(|leader| Some(leader.token) > deposed) {
                break leader.token;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let above = token.next().ok_or("no token is higher")?;
        operator.fence("leader", above, FenceWhen::AtExpiry).await?;
        println!("operator: deposed the leader of token {token}");
        deposed = Some(token);
    }
    for candidate in candidates {
        candidate.await??;
    }
    println!("{} terms", terms.load(Ordering::Relaxed));
    Ok(())
}

/// Campaigns until there were three terms; whoever comes after steps down.
async fn campaign(name: &str, leases: Leases, terms: Arc<AtomicU32>) -> Result<(), leases::Error> {
    while terms.load(Ordering::Relaxed) < 3 {
        let campaign = leases
            .lease("leader")
            .label(name)
            .ttl(Duration::from_millis(200))
            .wait(Duration::from_secs(2));
        let lease = match campaign.acquire().await {
            Ok(lease) => lease,
            Err(leases::Error::Contended { .. }) => continue,
            Err(error) => return Err(error),
        };
        let term = terms.fetch_add(1, Ordering::Relaxed) + 1;
        println!("{name}: leading, term {term}, token {}", lease.token());
        if term >= 3 {
            lease.release().await?;
            break;
        }
        // Leading goes on until the lease is lost, and ends at once then.
        let lost = lease.lost().await;
        println!("{name}: {lost}");
    }
    Ok(())
}
