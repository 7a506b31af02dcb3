//! The shared suite of queues on NATS: on one server for each case, and on one cluster
//! of three for all of them; with `LEASES_NATS_VARIANTS=all`, on a cluster for each case
//! too, whose servers are all killed at once.
#![allow(clippy::unwrap_used)]

mod one;
mod own_cluster;
mod renamed;
mod three;

use std::process::ExitCode;
use std::sync::Arc;

use lease_conformance::queue::QueueSuites;
use lease_conformance::{Arguments, FixtureError};
use lease_queue::QueueStore;
use lease_queue::nats::NatsOptions;

/// Cases wait most of the time.
const AT_A_TIME: usize = 16;

async fn client(options: NatsOptions) -> Result<Arc<dyn QueueStore>, FixtureError> {
    Ok(Arc::new(options.open().await?))
}

fn main() -> ExitCode {
    let mut suites = QueueSuites::new()
        .with("one", one::OneServer)
        .with("three", three::ThreeServers::default());
    if std::env::var_os("LEASES_NATS_VARIANTS").is_some_and(|which| which == "all") {
        suites = suites.with("killed", own_cluster::OwnCluster);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    suites.run(&arguments).exit_code()
}
