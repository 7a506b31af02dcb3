//! What the store does on servers that are set up in every odd way.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod runtimes;
