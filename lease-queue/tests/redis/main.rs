//! Queues on real servers of Redis: what the shared suites do not ask.
#![allow(clippy::unwrap_used)]

mod account;
mod batch;
mod cluster;
mod crash;
mod dropping;
mod far;
#[path = "../in_line/mod.rs"]
mod in_line;
mod line;
mod lists;
mod names;
mod owners;
mod race;
mod refusals;
mod spoiled;
mod support;
#[path = "../trips/mod.rs"]
mod trips;
mod twice;
mod zombie;
