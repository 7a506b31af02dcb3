//! The shared suite, on Redis set up in every way that a store can be told of.
//!
//! Each case has a server of its own, so that it may be killed, paused and
//! emptied, and everybody comes as the user of `docs/acl.md`. A few of the ways
//! run at each test; all of them with `LEASES_REDIS_VARIANTS=all`, and the ones
//! that it names with `LEASES_REDIS_VARIANTS=rdb,unix`.
#![allow(clippy::unwrap_used)]

mod app;
mod cluster;
mod over;
mod record;
mod spoil;
mod store;
mod trio;
mod variant;

use std::process::ExitCode;

use lease_conformance::{Arguments, Suites};

/// Cases wait most of the time.
const AT_A_TIME: usize = 16;

fn main() -> ExitCode {
    let chosen = std::env::var("LEASES_REDIS_VARIANTS").ok();
    let mut suites = Suites::new();
    for variant in variant::chosen(chosen.as_deref()) {
        suites = suites.with(variant.name, variant);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_A_TIME);
    suites.run(&arguments).exit_code()
}
