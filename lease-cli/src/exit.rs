//! Exit statuses: the one list of them, and how errors become one.

use std::process::ExitCode;

use leases::{
    AdmitError, Error, InvalidInput, NodeFailures, RefusedReason, StoreError, StoreErrorKind,
};

use crate::output;

/// What the program ends with. Scripts rely on these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    /// `fence` was answered with no; `doctor` found warnings; `requeue` found an item
    /// that is not set aside.
    No,
    /// Wrong arguments.
    Usage,
    /// `doctor` found something critical.
    Critical,
    /// The store is unavailable.
    Unavailable,
    /// A fault of this program or its surroundings.
    Internal,
    /// Not acquired in time.
    NotInTime,
    /// Lost, not held, or a stale token.
    Lost,
    /// The store is misconfigured or refuses.
    Misconfigured,
    /// The command was found and cannot be executed.
    NotExecutable,
    /// The command was not found.
    NotFound,
    /// The command's own status.
    Command(u8),
    /// This program or its command ended by a signal.
    Signalled(i32),
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::No => 1,
            Self::Usage => 2,
            Self::Critical => 3,
            Self::Unavailable => 69,
            Self::Internal => 70,
            Self::NotInTime => 75,
            Self::Lost => 76,
            Self::Misconfigured => 78,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
            Self::Command(code) => code,
            Self::Signalled(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// An exit status and, unless everything has been said, one line that says
/// what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    pub(crate) fn silent(exit: Exit) -> Self {
        Self::new(exit, "")
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let kept = matches!(
            &error,
            Error::Contended { holder: Some(holder), .. } if holder.remaining.is_zero()
        );
        let words = match kept {
            true => format!(
                "{}; its holder's time is over: {}",
                words(&error),
                output::KEPT
            ),
            false => words(&error),
        };
        Self::new(exit_of(&error), words)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Error::from(error).into()
    }
}

impl From<InvalidInput> for Failure {
    fn from(error: InvalidInput) -> Self {
        Error::from(error).into()
    }
}

impl From<AdmitError> for Failure {
    fn from(error: AdmitError) -> Self {
        match error {
            AdmitError::Store(error) => error.into(),
            stale => Self::new(Exit::Lost, stale.to_string()),
        }
    }
}

fn exit_of(error: &Error) -> Exit {
    match error {
        Error::Contended { .. } | Error::Cancelled { .. } => Exit::NotInTime,
        Error::Refused { reason, .. } => match reason {
            RefusedReason::TokensExhausted | RefusedReason::BelowMark { .. } => Exit::Misconfigured,
            _ => Exit::NotInTime,
        },
        Error::Store(error) => match error.kind() {
            StoreErrorKind::Unavailable | StoreErrorKind::UnknownOutcome => Exit::Unavailable,
            StoreErrorKind::InvalidInput => Exit::Usage,
            _ => Exit::Misconfigured,
        },
        Error::Invalid(InvalidInput::NoRandomness) => Exit::Internal,
        Error::Invalid(_) => Exit::Usage,
        Error::Lost(_) => Exit::Lost,
        _ => Exit::Internal,
    }
}

/// The error and what caused it, without saying anything twice.
pub(crate) fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_words = cause.to_string();
        if !words.contains(&cause_words) {
            words.push_str(": ");
            words.push_str(&cause_words);
        }
        if let Some(nodes) = cause.downcast_ref() {
            // Each node's own causes stand in its words.
            return words.replace(&cause_words, &by_words(nodes));
        }
        source = cause.source();
    }
    words
}

/// What each node of a quorum said; nodes that say the same are named together.
fn by_words(failures: &NodeFailures) -> String {
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for (node, error) in failures.nodes() {
        let said = words(error);
        match all.iter_mut().find(|(same, _)| *same == said) {
            Some((_, nodes)) => nodes.push(node),
            None => all.push((said, vec![node])),
        }
    }
    let parts = all.iter();
    let parts: Vec<_> = parts
        .map(|(said, nodes)| format!("{}: {said}", nodes.join(", ")))
        .collect();
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_errors_keep_their_meaning() {
        let exit = |error: StoreError| Failure::from(error).exit.code();
        assert_eq!(exit(StoreError::unavailable("x")), 69);
        assert_eq!(exit(StoreError::unknown_outcome("x")), 69);
        assert_eq!(exit(StoreError::refusing("x")), 78);
        assert_eq!(exit(InvalidInput::KeyEmpty.into()), 2);
        assert_eq!(Exit::Signalled(9).code(), 137);
    }

    #[test]
    fn causes_are_named_once() {
        let inner = std::io::Error::other("reset by peer");
        let error = StoreError::with_source(StoreErrorKind::Unavailable, "cut", inner);
        assert_eq!(
            words(&error),
            "the store is unavailable: cut: reset by peer"
        );
        let same = StoreError::from(InvalidInput::KeyEmpty);
        assert_eq!(words(&same).matches("empty").count(), 1);
    }
}
