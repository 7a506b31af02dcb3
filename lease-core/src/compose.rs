//! Stores made of stores. Each is a [`LeaseBackend`](crate::LeaseBackend)
//! itself and passes the same suite.

mod gate;
mod namespace;
mod quorum;

pub use gate::QuorumGate;
pub use namespace::Namespace;
pub use quorum::{NodeFailures, Quorum};
