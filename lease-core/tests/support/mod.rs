//! What the tests of the holder's side stand on: a store whose every call can
//! be scripted, a clock on tokio's paused time, and a record of what happened.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

mod clock;
mod scripted;
mod world;

pub use clock::TestClock;
pub use scripted::{Op, Scripted, Step};
pub use world::{World, is_unconfirmed, kinds, lost_of, ms, secs};
