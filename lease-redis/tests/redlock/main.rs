//! A quorum of real servers: how it is opened, initialised, looked at and lost.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod doctor;
mod init;
mod kit;
mod nodes;
