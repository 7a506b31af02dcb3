//! Guides for those who use leases, run them, or write a store of their own.

#[doc = include_str!("../docs/guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("../docs/operating.md")]
pub mod operating {}

#[doc = include_str!("../docs/observability.md")]
pub mod observability {}

// Its program needs them.
#[cfg_attr(feature = "queue", doc = include_str!("../docs/queues.md"))]
#[cfg_attr(not(feature = "queue"), doc = "Queues need the cargo feature `queue`.")]
pub mod queues {}

#[doc = include_str!("../docs/writing-a-backend.md")]
pub mod writing_a_backend {}
