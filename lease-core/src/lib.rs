//! The contract of a distributed lease, and everything that is the same for
//! every store.
//!
//! There are two surfaces. [`Leases`] and [`Lease`] are what an application
//! uses: acquire, a fencing token, work, renewals in the background, loss as a
//! signal, release. [`LeaseBackend`] is what a store implements; it has no
//! convenience methods, and the crate `lease-conformance` proves an
//! implementation. This crate talks to no store but the one in memory,
//! [`MemoryStore`].
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use lease_core::{Leases, MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), lease_core::Error> {
//! let leases = Leases::new(Arc::new(MemoryStore::new()));
//! let lease = leases.lease("reports/daily").ttl(Duration::from_secs(30)).acquire().await?;
//! lease
//!     .run(async {
//!         // Show the token with every write; the resource refuses older ones.
//!         let _token = lease.token();
//!     })
//!     .await?;
//! lease.release().await?;
//! # Ok(()) }
//! ```
#![forbid(unsafe_code)]

mod acquire;
mod adopt;
mod backend;
mod client;
mod clock;
mod compose;
mod diagnosis;
mod error;
mod gate;
mod guarantees;
mod key;
mod lease;
mod line;
mod lost;
mod memory;
mod observe;
mod owner;
mod queue;
mod renewal;
mod retry;
mod rounded;
// Public only where tests may take a rule out.
#[cfg_attr(not(feature = "broken-rules"), allow(unreachable_pub))]
mod rules;
mod subscription;
mod token;
mod ttl;

pub use acquire::{Acquire, Attempt, Working};
pub use adopt::Adoption;
pub use backend::{
    AcquireOutcome, AcquireRequest, FenceWhen, Granted, Holder, KeyState, LeaseBackend, LostCause,
    RefusedReason, ReleaseOutcome, RenewOutcome, RenewRequest, Session, TOMBSTONE_RETENTION,
    TakenOver, check_fence,
};
pub use client::{Leases, LeasesBuilder, ShutdownReport};
pub use clock::{Clock, ManualClock, Moment, SystemClock};
pub use compose::{Namespace, NodeFailures, Quorum, QuorumGate};
pub use diagnosis::{Diagnosis, Finding, Severity};
pub use error::{CancelReason, Error, InvalidInput, StoreError, StoreErrorKind};
pub use gate::{AdmitError, Gate, LocalGate, StaleToken};
pub use guarantees::{
    CrashRelease, Exclusion, ExpiryJudge, Guarantees, Survives, TtlRange, WaiterOrder, WakeUps,
};
pub use key::{Key, Label, MAX_KEY_BYTES, MAX_LABEL_BYTES};
pub use lease::{Grant, Lease, Released};
pub use line::{WAITER_TURN, place_lasts, turn_in};
pub use lost::{Lost, LostReason};
pub use memory::MemoryStore;
pub use observe::{Event, EventKind, Observer, UNREADABLE};
pub use owner::Owner;
#[cfg(feature = "broken-rules")]
pub use rules::{HolderRules, QuorumRules, StoreRules};
pub use subscription::Subscription;
pub use token::{Token, TokenRule};
pub use ttl::{DriftAllowance, Ttl};
