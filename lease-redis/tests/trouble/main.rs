//! What the store does when something around it goes wrong: replicas,
//! connections, runtimes, answers, and other programs at its records.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod connections;
mod odd_server;
mod records;
mod replicas;
mod runtimes;
