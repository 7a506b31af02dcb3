//! Leases on Redis: fenced by hybrid logical clocks, one script for each
//! operation.
#![forbid(unsafe_code)]
#![allow(dead_code)]

mod client;
mod doctor;
mod errors;
mod gate;
mod lane;
mod link;
mod list;
mod names;
mod options;
mod reply;
mod request;
mod script;
mod store;
mod url;
mod wake;
mod wire;

pub use gate::{ADMIT_LUA, FencedScript, RedisGate, ScriptError, stale_token};
pub use options::RedisOptions;
pub use redis;
pub use store::RedisStore;
