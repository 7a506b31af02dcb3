//! For those who run the server: rights, what the doctor finds, and what changes
//! with Sentinel and in a cluster.

#[doc = include_str!("../docs/acl.md")]
pub mod acl {}

#[doc = include_str!("../docs/cluster.md")]
pub mod cluster {}

#[doc = include_str!("../docs/doctor.md")]
pub mod doctor {}

#[doc = include_str!("../docs/sentinel.md")]
pub mod sentinel {}

#[doc = include_str!("../docs/redlock.md")]
pub mod redlock {}
