//! Stores made of stores. Each is a [`LeaseBackend`](crate::LeaseBackend)
//! itself and passes the same suite.

mod namespace;

pub use namespace::Namespace;
