//! What a case says when a rule of the contract is broken.

use std::fmt;

/// What a case gives back.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// A rule that does not hold: what the contract expects and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    expected: String,
    seen: String,
}

impl Failure {
    pub(crate) fn new(expected: impl Into<String>, seen: impl fmt::Debug) -> Self {
        Self::says(expected, format!("{seen:?}"))
    }

    /// As `new`, with words instead of a value.
    pub(crate) fn says(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self {
            expected: expected.into(),
            seen: seen.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "  expected: {}\n      seen: {}",
            self.expected, self.seen
        )
    }
}

/// Fails unless `holds`.
pub(crate) fn check(holds: bool, expected: impl Into<String>, seen: impl fmt::Debug) -> Outcome {
    if holds {
        Ok(())
    } else {
        Err(Failure::new(expected, seen))
    }
}

/// Fails unless the two are equal; `what` says what is compared.
pub(crate) fn check_eq<T: PartialEq + fmt::Debug>(what: &str, seen: T, expected: T) -> Outcome {
    if seen == expected {
        Ok(())
    } else {
        Err(Failure::new(format!("{what}: {expected:?}"), seen))
    }
}
