//! Servers that are killed and stand still, alone and three together, and that are far.
// A failure shows the seed.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod far;
#[path = "../in_line/mod.rs"]
mod in_line;
mod items;
mod line;
mod load;
mod login;
mod opening;
mod takeover;
#[path = "../trips/mod.rs"]
mod trips;
mod worker;

use std::sync::Arc;

use lease_core::{AcquireOutcome, AcquireRequest, Key, Label, LeaseBackend, Owner, TokenRule, Ttl};
use lease_queue::nats::NatsOptions;
use lease_queue::{KeyedLeases, QueueName};

async fn client(url: &str) -> Arc<KeyedLeases> {
    let store = NatsOptions::from_url(url).unwrap().open().await.unwrap();
    let queue = QueueName::new("locks").unwrap();
    Arc::new(KeyedLeases::new(Arc::new(store), queue))
}

fn ask(key: &str, ttl_ms: u64) -> AcquireRequest {
    AcquireRequest {
        key: Key::new(key).unwrap(),
        owner: Owner::random().unwrap(),
        ttl: Ttl::new(std::time::Duration::from_millis(ttl_ms)).unwrap(),
        label: Label::EMPTY,
        rule: TokenRule::NEXT,
        waits: None,
    }
}

/// The token, if it is granted. Asks again after what may pass.
async fn granted(backend: &KeyedLeases, request: &AcquireRequest) -> Option<lease_core::Token> {
    let give_up = tokio::time::Instant::now() + std::time::Duration::from_secs(40);
    loop {
        match backend.acquire(request).await {
            Ok(AcquireOutcome::Granted(granted)) => return Some(granted.token),
            Ok(_) => return None,
            Err(e) => {
                assert!(e.is_transient(), "{e:?}");
                assert!(tokio::time::Instant::now() < give_up, "{e:?}");
            }
        }
    }
}
