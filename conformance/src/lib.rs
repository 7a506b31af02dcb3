//! The conformance suite of leases.
#![forbid(unsafe_code)]

mod case;
mod cases;
mod client;
mod context;
mod dropping;
mod failure;
mod fixture;
mod harness;
mod history;
mod report;
mod runner;

pub use fixture::{Fixture, FixtureError, Restart, Store, fixture_fn};
pub use harness::{main, run};
pub use libtest_mimic::{Arguments, Conclusion};
pub use report::{Report, case_names, check, check_only};
pub use runner::CaseResult;
