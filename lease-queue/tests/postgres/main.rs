//! The store of queues on Postgres, on real servers: what the suites do not ask of
//! every store.
#![allow(clippy::unwrap_used)]

mod far;
#[path = "../in_line/mod.rs"]
mod in_line;
mod in_transaction;
mod line;
mod malformed;
mod mixed;
mod overtaken;
mod races;
mod strange;
mod support;
mod together;
#[path = "../trips/mod.rs"]
mod trips;
mod twice;
