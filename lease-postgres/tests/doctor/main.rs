//! What the doctor says of real servers, well and badly kept.
#![allow(clippy::unwrap_used)]

mod server;
mod support;
mod tables;
mod way;
