//! The queue for people over a store that fails when a test says so, on paused time.
#![allow(clippy::unwrap_used)]

mod claim;
mod lost;
mod put;
mod settle;
mod waiting;
mod worker;
mod world;
