//! What the store does on servers that are set up in every odd way.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod dropping;
mod foreign;
mod names;
mod quarantine;
mod reference;
mod refusals;
mod replicas;
mod runtimes;
mod silence;
