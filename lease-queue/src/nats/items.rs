//! Items: a deterministic state machine, applied by every client to the same log.
//!
//! The state is the reference's own table. Two things are different: what would be a
//! read and a write is one operation, which takes effect at its place in the log; and
//! no clock ends a grant. An operation says which grants its client has seen unchanged
//! for as long as they last, and those are over if that is still what they are.

mod clock;
mod cutter;
mod limits;
mod look;
mod machine;
mod op;
mod saved;
mod sight;
mod store;
#[cfg(test)]
mod tests;
mod text;
mod wire;

pub(super) use store::Items;
