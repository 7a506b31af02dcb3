//! The contract of a distributed lease, and everything that is the same for
//! every store.
//!
//! What a store implements is [`LeaseBackend`]; [`MemoryStore`] is the reference.
#![forbid(unsafe_code)]

mod backend;
mod clock;
mod diagnosis;
mod error;
mod gate;
mod guarantees;
mod key;
mod lost;
mod memory;
mod owner;
mod rules;
mod token;
mod ttl;

pub use backend::{
    AcquireOutcome, AcquireRequest, FenceWhen, Granted, Holder, KeyState, LeaseBackend, LostCause,
    RefusedReason, ReleaseOutcome, RenewOutcome, RenewRequest, TOMBSTONE_RETENTION, TakenOver,
    check_fence,
};
pub use clock::{Clock, ManualClock, Moment, SystemClock};
pub use diagnosis::{Diagnosis, Finding, Severity};
pub use error::{CancelReason, Error, InvalidInput, StoreError, StoreErrorKind};
pub use gate::{AdmitError, Gate, LocalGate, StaleToken};
pub use guarantees::{
    CrashRelease, Exclusion, ExpiryJudge, Guarantees, Survives, TtlRange, WaiterOrder, WakeUps,
};
pub use key::{Key, Label, MAX_KEY_BYTES, MAX_LABEL_BYTES};
pub use lost::{Lost, LostReason};
pub use memory::MemoryStore;
pub use owner::Owner;
#[cfg(feature = "broken-rules")]
pub use rules::{HolderRules, StoreRules};
pub use token::{Token, TokenRule};
pub use ttl::{DriftAllowance, Ttl};
