//! What a user of queues meets.

use std::error::Error as StdError;
use std::fmt;

use lease_core::{InvalidInput, Lost, RefusedReason, StoreError};

use crate::codec::CodecError;
use crate::name::QueueInput;
use crate::queue::Claim;

/// What went wrong with a queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// Input that no queue takes.
    #[error(transparent)]
    Input(#[from] QueueInput),
    /// Input that no lease takes.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The payload could not be written.
    #[error("the payload cannot be written: {0}")]
    Payload(#[source] CodecError),
    /// The store failed; [`StoreError::kind`] says how.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store refuses to give an item out, for now or for good.
    #[error("the queue gives nothing out: {0}")]
    Refused(RefusedReason),
    /// The queue's client was shut down.
    #[error("the queue was shut down; open it again to go on")]
    Closed,
    /// There is no tokio runtime to renew claims on.
    #[error("a claim needs a running tokio runtime: call it from within one")]
    NoRuntime,
}

/// From what making a lease ran into.
impl From<lease_core::Error> for QueueError {
    fn from(error: lease_core::Error) -> Self {
        match error {
            lease_core::Error::Invalid(invalid) => Self::Invalid(invalid),
            lease_core::Error::Store(error) => Self::Store(error),
            lease_core::Error::NoRuntime => Self::NoRuntime,
            lease_core::Error::Refused { reason, .. } => Self::Refused(reason),
            lease_core::Error::Cancelled { .. } => Self::Closed,
            other => Self::Store(StoreError::refusing(other.to_string())),
        }
    }
}

/// Why a claim could not be settled.
#[non_exhaustive]
pub enum SettleError<T> {
    /// The claim is not live: nothing was changed, and whoever has the item by now
    /// keeps it. The work may be done again by others.
    Lost(Lost),
    /// No answer says whether it took effect, or the store refused it. The claim is given
    /// back, held and renewed as before, if it still is: settle it again. (What took
    /// effect does so once.) Dropping it gives the item back.
    Unsettled {
        /// The claim.
        claim: Box<Claim<T>>,
        /// The store's last failure.
        error: StoreError,
    },
}

impl<T> SettleError<T> {
    /// The claim, if it was given back.
    #[must_use]
    pub fn into_claim(self) -> Option<Claim<T>> {
        match self {
            Self::Lost(_) => None,
            Self::Unsettled { claim, .. } => Some(*claim),
        }
    }
}

impl<T> fmt::Display for SettleError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(lost) => lost.fmt(f),
            Self::Unsettled { error, .. } => {
                write!(
                    f,
                    "the claim could not be settled; settle it again: {error}"
                )
            }
        }
    }
}

impl<T> fmt::Debug for SettleError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(lost) => f.debug_tuple("Lost").field(lost).finish(),
            Self::Unsettled { claim, error } => f
                .debug_struct("Unsettled")
                .field("claim", claim)
                .field("error", error)
                .finish(),
        }
    }
}

impl<T> StdError for SettleError<T> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Lost(lost) => Some(lost),
            Self::Unsettled { error, .. } => Some(error),
        }
    }
}
