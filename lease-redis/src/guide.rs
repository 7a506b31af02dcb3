//! For those who run the server: rights, and what the doctor finds.

#[doc = include_str!("../docs/acl.md")]
pub mod acl {}

#[doc = include_str!("../docs/doctor.md")]
pub mod doctor {}

#[doc = include_str!("../docs/redlock.md")]
pub mod redlock {}
