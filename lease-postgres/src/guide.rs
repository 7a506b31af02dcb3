//! Guides for the use of the store, and for those who run the server.

#[doc = include_str!("../docs/doctor.md")]
pub mod doctor {}

#[doc = include_str!("../docs/transactions.md")]
pub mod transactions {}
