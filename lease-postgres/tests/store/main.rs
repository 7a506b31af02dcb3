//! What the store does on real servers, apart from the shared suite.
#![allow(clippy::unwrap_used)]

mod admitting;
mod locks;
mod lost_answers;
mod malformed;
mod opening;
mod pooler;
mod reference;
mod roles;
mod sessions;
mod spare;
mod stopped;
mod strange;
mod support;
mod transactions;
mod wake_ups;
