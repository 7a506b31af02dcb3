//! What a handler says of its item.

use std::fmt;
use std::time::Duration;

/// What becomes of a handler's item.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is done.
    Complete,
    /// It goes back and waits for this long; the attempt counts.
    RetryAfter(Duration),
    /// It goes back at once; the attempt does not count.
    Abandon,
    /// The attempt failed, for this reason: backoff, and burial after the last.
    Fail(String),
    /// It is set aside until somebody looks, for this reason.
    Bury(String),
}

impl From<()> for Verdict {
    fn from((): ()) -> Self {
        Self::Complete
    }
}

impl<E: fmt::Display> From<Result<(), E>> for Verdict {
    fn from(result: Result<(), E>) -> Self {
        match result {
            Ok(()) => Self::Complete,
            // With its sources, where the error prints them so.
            Err(error) => Self::Fail(format!("{error:#}")),
        }
    }
}
