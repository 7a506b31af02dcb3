//! Queues on real servers of Redis: what the shared suites do not ask.
#![allow(clippy::unwrap_used)]

mod account;
mod cluster;
mod crash;
mod dropping;
mod lists;
mod names;
mod race;
mod refusals;
mod spoiled;
mod support;
mod twice;
mod zombie;
