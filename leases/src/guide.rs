//! Guides for those who use leases, run them, or write a store of their own.

#[doc = include_str!("../docs/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("../docs/operating.md")]
pub mod operating {}

#[doc = include_str!("../docs/observability.md")]
pub mod observability {}

#[doc = include_str!("../docs/writing-a-backend.md")]
pub mod writing_a_backend {}
