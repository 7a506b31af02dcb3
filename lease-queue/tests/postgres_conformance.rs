//! The shared suite of leases over queues in Postgres, through the adapter for keyed
//! leases. A case has a server for itself while it runs, so that it may be killed,
//! paused and emptied; after one that did no such thing, the next takes the server,
//! with a schema of its own.
//!
//! With `LEASES_POSTGRES_VARIANTS=all`, by a pooler in transaction mode too.
#![allow(clippy::unwrap_used)]

#[path = "postgres/servers.rs"]
mod servers;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lease_conformance::{
    Arguments, Fixture, FixtureError, LoseData, Network, Pause, Restart, Store, Suites,
};
use lease_core::LeaseBackend;
use lease_queue::{KeyedLeases, QueueName};
use servers::{Case, Servers, TOMBSTONES};

/// Cases wait most of the time.
const AT_A_TIME: usize = 8;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let servers = Servers::default();
    let mut suites = Suites::new().with("queue+postgres", Leases(servers.clone()));
    if servers::all_variants() {
        suites = suites.with("queue+pgbouncer", Leases(servers.pooled()));
    }
    suites.run(&arguments).exit_code()
}

struct Leases(Servers);

#[async_trait]
impl Fixture for Leases {
    async fn open(&self) -> Result<Box<dyn Store>, FixtureError> {
        Ok(Box::new(LeaseCase(self.0.case()?)))
    }
}

struct LeaseCase(Case);

#[async_trait]
impl Store for LeaseCase {
    async fn client(&self) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
        let store = Arc::new(self.0.client().await?);
        Ok(Arc::new(KeyedLeases::new(store, QueueName::new("leases")?)))
    }

    fn tombstone_retention(&self) -> Option<Duration> {
        Some(TOMBSTONES)
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(&self.0)
    }

    fn lose_data(&self) -> Option<&dyn LoseData> {
        Some(&self.0)
    }

    fn pause(&self) -> Option<&dyn Pause> {
        Some(&self.0)
    }

    fn network(&self) -> Option<&dyn Network> {
        Some(self.0.proxy())
    }
}
