//! The shared suite of leases on NATS, through the adapter for keyed leases: on one
//! server for each case, and on one cluster of three for all of them.
#![allow(clippy::unwrap_used)]

mod cluster;
mod one;
mod spoil;

use std::process::ExitCode;
use std::sync::Arc;

use lease_conformance::{Arguments, FixtureError, Suites};
use lease_core::LeaseBackend;
use lease_queue::nats::NatsOptions;
use lease_queue::{KeyedLeases, QueueName};

/// Cases wait most of the time.
const AT_A_TIME: usize = 16;
/// A queue whose keys are leased. Not only letters: it is a part of subjects.
const QUEUE: &str = "leases *.>";

async fn client(options: NatsOptions, queue: &str) -> Result<Arc<dyn LeaseBackend>, FixtureError> {
    let store = Arc::new(options.open().await?);
    Ok(Arc::new(KeyedLeases::new(store, QueueName::new(queue)?)))
}

fn main() -> ExitCode {
    let suites = Suites::new()
        .with("one", one::OneServer)
        .with("three", cluster::ThreeServers::default());
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    suites.run(&arguments).exit_code()
}
