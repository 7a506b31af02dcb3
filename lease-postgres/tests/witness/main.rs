//! Crash detection on real servers: what frees a key, what does not, and what is
//! refused.
#![allow(clippy::unwrap_used)]

mod crash;
mod outage;
mod pooler;
mod sessions;
mod support;
