//! The store while its server is killed, paused, cut off and made to forget.
//!
//! Runs under load last `LEASES_REDIS_FAULT_SECONDS` each (3 by default) and
//! take what is random from `LEASES_REDIS_FAULT_SEED`; a failure prints both.
// What a run saw is shown when it fails.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../support/mod.rs"]
mod support;

mod bytes;
mod harm;
mod holder;
mod load;
mod loss;
mod network;
mod pause;
mod quorum;
mod restart;
mod scripts;
