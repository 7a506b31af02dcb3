//! The store over sentinels, while servers and sentinels are killed, cut off and
//! replaced.
//!
//! Runs under load last `LEASES_REDIS_FAULT_SECONDS` each (3 by default) and
//! take what is random from `LEASES_REDIS_FAULT_SEED`; a failure prints both.
// What a run saw is shown when it fails.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../faults/holder.rs"]
mod holder;
#[path = "../faults/load.rs"]
mod load;
#[path = "../support/mod.rs"]
mod support;

mod connecting;
mod failover;
mod kills;
mod restart;
mod split;
mod trio;
