//! Loss: that a holder may no longer act, and why.

use std::fmt;
use std::time::Duration;

use crate::backend::LostCause;
use crate::error::StoreError;
use crate::key::Key;
use crate::rounded::Rounded;
use crate::token::Token;

/// The lease is lost: its holder may no longer act.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the lease on {key:?} (token {token}) is lost: {reason}; stop writing")]
#[non_exhaustive]
pub struct Lost {
    /// The key.
    pub key: Key,
    /// The token that is no longer good.
    pub token: Token,
    /// Why.
    pub reason: LostReason,
}

impl Lost {
    /// For stores that find a lease lost outside of its renewals.
    #[must_use]
    pub fn new(key: Key, token: Token, reason: LostReason) -> Self {
        Self { key, token, reason }
    }
}

/// Why a lease is lost.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LostReason {
    /// The store says that the grant is not live.
    Store(LostCause),
    /// No renewal was confirmed before the deadline.
    Unconfirmed {
        /// What the last attempt ran into, if one had failed.
        last_error: Option<StoreError>,
    },
    /// It was held for as long as its holder had allowed.
    MaxHold {
        /// The limit.
        limit: Duration,
    },
    /// Its holder showed no progress in time.
    NoProgress {
        /// The limit.
        limit: Duration,
    },
    /// The client was shut down.
    Shutdown,
    /// The runtime that renewed it is gone.
    RuntimeGone,
    /// It was given up for its holder, who may still have the handle.
    GivenUp,
}

impl LostReason {
    /// A stable word for logs and metric labels.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Store(cause) => cause.as_str(),
            Self::Unconfirmed { .. } => "unconfirmed",
            Self::MaxHold { .. } => "max_hold",
            Self::NoProgress { .. } => "no_progress",
            Self::Shutdown => "shutdown",
            Self::RuntimeGone => "runtime_gone",
            Self::GivenUp => "given_up",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(cause) => cause.fmt(f),
            Self::Unconfirmed { last_error: None } => {
                f.write_str("no renewal was confirmed before its deadline")
            }
            Self::Unconfirmed {
                last_error: Some(error),
            } => write!(f, "no renewal was confirmed before its deadline ({error})"),
            Self::MaxHold { limit } => {
                write!(f, "it was held for its maximum of {}", Rounded(*limit))
            }
            Self::NoProgress { limit } => {
                write!(f, "its holder showed no progress for {}", Rounded(*limit))
            }
            Self::Shutdown => f.write_str("the client was shut down"),
            Self::RuntimeGone => f.write_str("the runtime that renewed it is gone"),
            Self::GivenUp => f.write_str("it was given up for its holder"),
        }
    }
}
