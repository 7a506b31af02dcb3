//! Leases on Redis: fenced by hybrid logical clocks, one script for each
//! operation.
#![forbid(unsafe_code)]
#![allow(dead_code)]

mod errors;
mod names;
