//! Small programs that run as they stand: `cargo run -p leases-examples
//! --example run_once`. Each ends by itself, and the tests run them all.
//!
//! Those on a server start one of their own, on a free port and with its data in a
//! temporary folder: `postgres` and `postgres_transaction` by the programs of Postgres
//! (Debian's package `postgresql`, or the folder that `LEASES_POSTGRES_BIN` names),
//! `redis_fenced` and `redlock` by `redis-server` (or what `LEASES_REDIS_SERVER` names).
//! On a server that runs already, the same code takes its URL in the place of
//! `server.url()`; `lease doctor --store URL` says whether that one is fit for it.
#![forbid(unsafe_code)]
