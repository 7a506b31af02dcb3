//! The holder's side over a store that follows a script, on paused time: what
//! `Leases`, `Acquire` and `Lease` do whatever the store, the network, the
//! clock or the runtime does.

#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod acquire;
mod adopt;
mod api;
mod batches;
mod cancel;
mod deadline;
mod events;
mod giving_up;
mod hand_over;
mod in_line;
mod loss;
mod queue;
mod release;
mod renewal;
mod rules;
mod runtime;
mod sessions;
mod shutdown;
mod subscribing;
mod threads;
mod wake;
