//! The store of queues on Postgres, on real servers: what the suites do not ask of
//! every store.
#![allow(clippy::unwrap_used)]

mod in_transaction;
mod malformed;
mod races;
mod strange;
mod support;
mod twice;
