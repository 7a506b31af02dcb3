//! What can become of a fenced script.

use lease_core::{AdmitError, StaleToken, StoreError};

/// Why a fenced script gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// A higher token was admitted before; the script was not run.
    #[error(transparent)]
    Stale(#[from] StaleToken),
    /// Redis failed. [`StoreError::kind`] says whether the script may have
    /// run: only with an unknown outcome.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The token was admitted, and stays so; the script itself failed or
    /// returned an error. Redis undoes nothing: what it had written before
    /// the error stays.
    #[error(
        "the token was admitted, but the script failed: {message}; what it wrote before that stays"
    )]
    Failed {
        /// Its error.
        message: String,
    },
    /// The token was admitted and the script ran to its end, but its answer is
    /// not of the type that was asked for.
    #[error("the script ran, but its answer is not what was asked for: {message}")]
    Answer {
        /// What kind of value it is, and what was asked for.
        message: String,
    },
}

impl From<AdmitError> for ScriptError {
    fn from(error: AdmitError) -> Self {
        match error {
            AdmitError::Stale(stale) => Self::Stale(stale),
            AdmitError::Store(store) => Self::Store(store),
            // A kind of refusal that this version does not know.
            other => Self::Store(StoreError::refusing(other.to_string())),
        }
    }
}
