//! The suite of queues over Postgres: directly; with `LEASES_POSTGRES_VARIANTS=all`, by
//! a pooler in transaction mode too.
#![allow(clippy::unwrap_used)]

#[path = "postgres/servers.rs"]
mod servers;

use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use lease_conformance::queue::{QueueFixture, QueueSuites, QueueTarget};
use lease_conformance::{Arguments, FixtureError, Network, Restart};
use lease_queue::QueueStore;
use servers::{Case, Servers};

/// Cases wait most of the time.
const AT_A_TIME: usize = 8;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    let servers = Servers::default();
    let mut suites = QueueSuites::new().with("queue+postgres", Queues(servers.clone()));
    if servers::all_variants() {
        suites = suites.with("queue+pgbouncer", Queues(servers.pooled()));
    }
    suites.run(&arguments).exit_code()
}

struct Queues(Servers);

#[async_trait]
impl QueueFixture for Queues {
    async fn open(&self) -> Result<Box<dyn QueueTarget>, FixtureError> {
        Ok(Box::new(QueueCase(self.0.case()?)))
    }
}

struct QueueCase(Case);

#[async_trait]
impl QueueTarget for QueueCase {
    async fn client(&self) -> Result<Arc<dyn QueueStore>, FixtureError> {
        Ok(Arc::new(self.0.client().await?))
    }

    fn restart(&self) -> Option<&dyn Restart> {
        Some(&self.0)
    }

    fn network(&self) -> Option<&dyn Network> {
        // By a pooler, the reply that these cases lose is that of BEGIN: the store knows
        // that nothing took effect, and asks again.
        let replies = !self.0.is_pooled();
        replies.then(|| self.0.proxy() as &dyn Network)
    }
}
