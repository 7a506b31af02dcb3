//! A quorum of stores: its protocol as an exhaustive model, and the product's
//! own code over stores that fail.

// A test's helpers may panic: that is how a test fails.
#![allow(clippy::unwrap_used)]

mod model;
mod nodes;
mod repeats;
mod rules;
mod simulation;
mod slow;
