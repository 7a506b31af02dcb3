//! The log over real servers, with a toy machine.
// A failure shows the seed.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod basics;
mod crowd;
mod faults;
mod losses;
mod rules;
mod snapshots;
mod toy;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::logs::Logs;
use super::{Log, stream};
use crate::name::QueueName;
use crate::nats::link::Link;
use crate::nats::names::Names;
use crate::nats::{NatsOptions, NatsStore};
use toy::Toy;

/// One client with a connection of its own.
struct Client {
    logs: Logs<Toy>,
    store: NatsStore,
}

impl Client {
    async fn new(url: &str) -> Self {
        Self::with(NatsOptions::from_url(url).unwrap()).await
    }

    async fn with(options: NatsOptions) -> Self {
        let store = options.clone().open().await.unwrap();
        let (logs, snaps) = stream::ready(store.link(), &options).await.unwrap();
        Self {
            logs: Logs::new(logs, snaps, options.names.clone()),
            store,
        }
    }

    fn link(&self) -> &Link {
        self.store.link()
    }

    fn log(&self) -> Arc<Log<Toy>> {
        self.logs.of(&queue())
    }
}

fn queue() -> QueueName {
    QueueName::new("q").unwrap()
}

/// Where its log is.
fn subject() -> String {
    Names::default().log(&queue())
}

/// The state as of now.
async fn now(client: &Client) -> Toy {
    client.log().read(Clone::clone, soon()).await.unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}
