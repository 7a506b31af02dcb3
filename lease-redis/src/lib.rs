//! Leases on Redis: fenced by hybrid logical clocks, one script for each
//! operation.
#![forbid(unsafe_code)]
#![allow(dead_code)]

mod client;
mod errors;
mod names;
mod options;
mod url;
mod wake;

pub use options::RedisOptions;
pub use redis;
