//! Guides for the use of the store.

#[doc = include_str!("../docs/transactions.md")]
pub mod transactions {}
