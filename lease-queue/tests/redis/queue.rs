//! The shared suite of queues, on Redis.
#![allow(clippy::unwrap_used)]

mod account;
mod own_server;

use std::process::ExitCode;

use lease_conformance::Arguments;
use own_server::AofAlways;

/// Cases wait most of the time.
const AT_A_TIME: usize = 16;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    lease_conformance::queue::run("queue+redis", AofAlways, &arguments).exit_code()
}
