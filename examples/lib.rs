//! Small programs that run as they stand: `cargo run -p leases-examples
//! --example run_once`. Each ends by itself, and the tests run them all.
#![forbid(unsafe_code)]
