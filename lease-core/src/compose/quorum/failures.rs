//! What went wrong on which node.

use std::error::Error as StdError;
use std::fmt;

use super::Inner;
use crate::error::{StoreError, StoreErrorKind};

/// Why no majority came about: what each node said. The source of a quorum's
/// [`StoreError`].
#[derive(Clone, Debug)]
pub struct NodeFailures {
    nodes: Vec<(String, StoreError)>,
}

impl NodeFailures {
    /// The nodes that failed, by name, each with its own error.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &StoreError)> {
        self.nodes.iter().map(|(name, error)| (&**name, error))
    }
}

impl fmt::Display for NodeFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, error)) in self.nodes.iter().enumerate() {
            let comma = if i == 0 { "" } else { "; " };
            write!(f, "{comma}{name}: {error}")?;
        }
        Ok(())
    }
}

impl StdError for NodeFailures {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.nodes
            .first()
            .map(|(_, error)| error as &(dyn StdError + 'static))
    }
}

/// What the nodes said, as far as it is not what was asked for.
pub(super) type Failed<'a> = Vec<(usize, &'a StoreError)>;

impl Inner {
    /// The error of a call that less than a majority has answered as it should.
    /// `effect` says whether it may have taken effect on some node.
    pub(super) fn no_majority(&self, what: &str, failed: &Failed<'_>, effect: bool) -> StoreError {
        let of = |kind| failed.iter().filter(|(_, e)| e.kind() == kind).count();
        let refusing = of(StoreErrorKind::Refusing);
        let kind = if of(StoreErrorKind::InvalidInput) > 0 && !effect {
            StoreErrorKind::InvalidInput
        } else if refusing > self.spare() {
            // Nothing that this client does can bring a majority about.
            StoreErrorKind::Refusing
        } else if effect || of(StoreErrorKind::UnknownOutcome) > 0 {
            StoreErrorKind::UnknownOutcome
        } else {
            StoreErrorKind::Unavailable
        };
        let nodes: Vec<_> = failed
            .iter()
            .filter_map(|(i, error)| {
                let node = self.nodes.get(*i)?;
                Some((node.name.clone(), (*error).clone()))
            })
            .collect();
        let failures = NodeFailures { nodes };
        let message = format!(
            "{what} needs {} of {} nodes ({failures})",
            self.majority,
            self.nodes.len()
        );
        StoreError::with_source(kind, message, failures)
    }
}
