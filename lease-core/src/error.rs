//! Errors: what went wrong, whether a retry helps, and what to do about it.
//!
//! *Held* is not here: that a key is taken is an answer, not an error, until
//! a waiter's time is up. An outcome that is **unknown** is a case of its own,
//! never folded into failure: the request may have taken effect.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Holder, RefusedReason};
use crate::key::{Key, MAX_KEY_BYTES, MAX_LABEL_BYTES};
use crate::lost::Lost;
use crate::rounded::Rounded;
use crate::token::Token;

/// Input that no store would accept, with the limit that it breaks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidInput {
    /// The key has no bytes.
    #[error("the key is empty; a key has 1 to {MAX_KEY_BYTES} bytes")]
    KeyEmpty,
    /// The key has too many bytes.
    #[error("the key has {bytes} bytes; the limit is {MAX_KEY_BYTES}")]
    KeyTooLong {
        /// How many it has.
        bytes: usize,
    },
    /// The key has more bytes than this store takes.
    #[error("the key has {bytes} bytes; this store takes up to {max}")]
    KeyTooLongForStore {
        /// How many it has.
        bytes: usize,
        /// How many the store takes.
        max: usize,
    },
    /// The key holds a control character.
    #[error("the key holds a control character at byte {at}; keys are printable text")]
    KeyControlCharacter {
        /// Where the first one starts, in bytes.
        at: usize,
    },
    /// The namespace holds the separator.
    #[error("a namespace must not hold a ':', which separates it from its keys")]
    NamespaceHoldsColon,
    /// The namespace leaves no room for a key.
    #[error("the namespace leaves no room for a key; a key of this store has up to {max} bytes")]
    NamespaceTooLong {
        /// How many bytes a key may have, the namespace included.
        max: usize,
    },
    /// The label has too many bytes.
    #[error("the label has {bytes} bytes; the limit is {MAX_LABEL_BYTES}")]
    LabelTooLong {
        /// How many it has.
        bytes: usize,
    },
    /// The label holds a control character.
    #[error("the label holds a control character at byte {at}; labels are printable text")]
    LabelControlCharacter {
        /// Where the first one starts, in bytes.
        at: usize,
    },
    /// The text is not an owner.
    #[error("not an owner: expected 32 hexadecimal digits, as acquire printed them")]
    OwnerMalformed,
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes, and an owner must be unique")]
    NoRandomness,
    /// The text is not a token.
    #[error(
        "not a fencing token: expected a whole number from 1 to {}",
        Token::MAX
    )]
    TokenMalformed,
    /// The number is not a token.
    #[error("{token} is not a fencing token; tokens are 1 to {}", Token::MAX)]
    TokenOutOfRange {
        /// The number.
        token: u64,
    },
    /// The mark that a fence asks for is too high.
    #[error(
        "a fence at {at_least} is refused: above {} it would use up the key's tokens",
        Token::MAX_FENCE
    )]
    FenceTooHigh {
        /// The mark that was asked for.
        at_least: Token,
    },
    /// The TTL is outside what the store takes.
    #[error("a TTL of {} is outside {} to {}", outside(.ttl, [.min, .max]), Rounded(*.min), Rounded(*.max))]
    TtlOutOfRange {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The shortest.
        min: Duration,
        /// The longest.
        max: Duration,
    },
    /// The drift allowance would eat the TTL.
    #[error("a drift allowance of {per_million} millionths is too large; it must be below 500000")]
    DriftTooLarge {
        /// The share that was asked for.
        per_million: u32,
    },
    /// The drift allowance leaves nothing of the TTL to the holder.
    #[error(
        "a drift allowance of {} leaves nothing of a TTL of {}; use a longer TTL",
        Rounded(*.allowance),
        Rounded(*.ttl)
    )]
    NothingLeft {
        /// The TTL that was asked for.
        ttl: Duration,
        /// The allowance for it.
        allowance: Duration,
    },
    /// A duration that a lease's options need is zero.
    #[error("{option} must be longer than zero")]
    ZeroDuration {
        /// The option.
        option: &'static str,
    },
    /// The nodes do not make a quorum.
    #[error("{what}")]
    QuorumNodes {
        /// What is wrong with them.
        what: String,
    },
    /// The store's URL cannot be used.
    #[error("{0}")]
    Url(String),
}

/// A duration beyond one of these limits, exact where rounding would hide that.
fn outside(duration: &Duration, limits: [&Duration; 2]) -> String {
    let rounded = Rounded(*duration).to_string();
    if limits
        .iter()
        .any(|limit| Rounded(**limit).to_string() == rounded)
    {
        return format!("{duration:?}");
    }
    rounded
}

/// For conversions that cannot fail: a [`Key`] is a key.
impl From<Infallible> for InvalidInput {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// What kind of failure a store's answer, or its silence, was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store could not be reached or was too busy, and the request
    /// certainly had **no effect**. Worth a retry.
    Unavailable,
    /// The request was sent and no clear answer came back: it **may or may
    /// not have taken effect**, and may still do so.
    UnknownOutcome,
    /// The store answers, and will go on refusing until somebody changes
    /// something: credentials, read-only replica, missing schema, a foreign
    /// value in our place, out of memory. The request had no effect.
    Refusing,
    /// This store's own limits do not allow the input.
    InvalidInput,
}

impl StoreErrorKind {
    /// A stable word for logs and metric labels.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::UnknownOutcome => "unknown_outcome",
            Self::Refusing => "refusing",
            Self::InvalidInput => "invalid_input",
        }
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A store's failure: a kind to decide on, words to act on, and its source.
///
/// Cheap to clone. Implementers must keep secrets (passwords in URLs) out of
/// the message *and* of the source.
#[derive(Clone)]
pub struct StoreError(Arc<Inner>);

struct Inner {
    kind: StoreErrorKind,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl StoreError {
    /// A failure of `kind`; `message` tells the user what to do.
    #[must_use]
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            source: None,
        }))
    }

    /// As [`new`](Self::new), with what caused it.
    #[must_use]
    pub fn with_source(
        kind: StoreErrorKind,
        message: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            source: Some(source.into()),
        }))
    }

    /// A transient failure without effect.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Unavailable, message)
    }

    /// A request whose effect is not known.
    #[must_use]
    pub fn unknown_outcome(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::UnknownOutcome, message)
    }

    /// A permanent refusal without effect.
    #[must_use]
    pub fn refusing(message: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Refusing, message)
    }

    /// The kind, to decide on.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.0.kind
    }

    /// Whether a retry may help: unavailable, or outcome unknown.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.0.kind,
            StoreErrorKind::Unavailable | StoreErrorKind::UnknownOutcome
        )
    }

    /// Whether the request may have taken effect.
    #[must_use]
    pub fn is_unknown_outcome(&self) -> bool {
        self.0.kind == StoreErrorKind::UnknownOutcome
    }

    /// The words, without the source.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind {
            StoreErrorKind::Unavailable => f.write_str("the store is unavailable: "),
            StoreErrorKind::UnknownOutcome => f.write_str("the outcome is unknown: "),
            StoreErrorKind::Refusing => f.write_str("the store refuses: "),
            StoreErrorKind::InvalidInput => Ok(()),
        }?;
        f.write_str(&self.0.message)
    }
}

impl StdError for StoreError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|e| e as &(dyn StdError + 'static))
    }
}

impl From<InvalidInput> for StoreError {
    fn from(invalid: InvalidInput) -> Self {
        Self::with_source(
            StoreErrorKind::InvalidInput,
            invalid.to_string(),
            invalid.clone(),
        )
    }
}

/// Why an acquisition was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelReason {
    /// The caller's cancellation token fired.
    Token,
    /// The client was shut down.
    Shutdown,
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token => "its cancellation token fired",
            Self::Shutdown => "the client was shut down",
        })
    }
}

/// What a user of `Leases` and `Lease` meets.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else held the key, or was before the caller in the queue, until
    /// the caller's time was up.
    #[error("{key:?} {} when the wait of {} ended{}", in_the_way(.holder), Rounded(*.waited), held_by(.holder))]
    Contended {
        /// The key.
        key: Key,
        /// How long the caller had waited.
        waited: Duration,
        /// The holder as the store last saw it, or, when it is a lease of this
        /// client, as the client knows it; none if none was seen.
        holder: Option<Holder>,
        /// The store's last failure, if it also failed during the wait.
        #[source]
        store: Option<StoreError>,
    },
    /// The acquisition was cancelled. Nothing is left behind once its owner was
    /// abandoned in the background, which a shutdown waits for.
    #[error("acquiring {key:?} was cancelled: {why}")]
    Cancelled {
        /// The key.
        key: Key,
        /// What cancelled it.
        why: CancelReason,
    },
    /// The store refuses to grant this key for now or for good.
    #[error("{key:?} cannot be granted: {reason}")]
    Refused {
        /// The key.
        key: Key,
        /// Why.
        reason: RefusedReason,
    },
    /// The store failed; [`StoreError::kind`] says how.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Input that no store would accept.
    #[error(transparent)]
    Invalid(#[from] InvalidInput),
    /// The lease is lost: its holder may no longer act.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// There is no tokio runtime to renew the lease on.
    #[error("acquire needs a running tokio runtime: call it from within one")]
    NoRuntime,
}

fn in_the_way(holder: &Option<Holder>) -> &'static str {
    match holder {
        Some(_) => "was still held",
        None => "was not granted yet",
    }
}

fn held_by(holder: &Option<Holder>) -> String {
    match holder {
        Some(h) if !h.label.as_str().is_empty() => format!(" (by {})", h.label),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Label;

    #[test]
    fn durations_are_written_for_people() {
        let contended = |holder| Error::Contended {
            key: Key::new("k").unwrap(),
            waited: Duration::from_nanos(1_999_831_536),
            holder,
            store: None,
        };
        let holder = Holder {
            label: Label::new("them").unwrap(),
            token: Token::MIN,
            age: Duration::ZERO,
            remaining: Duration::ZERO,
        };
        let held = contended(Some(holder)).to_string();
        assert_eq!(
            held,
            "\"k\" was still held when the wait of 2s ended (by them)"
        );
        // Without a holder that would be a guess.
        let never = contended(None).to_string();
        assert_eq!(never, "\"k\" was not granted yet when the wait of 2s ended");
        let ttl = |ttl| {
            let (min, max) = (crate::Ttl::MIN.get(), crate::Ttl::MAX.get());
            InvalidInput::TtlOutOfRange { ttl, min, max }.to_string()
        };
        assert_eq!(
            ttl(Duration::from_millis(49)),
            "a TTL of 49ms is outside 50ms to 366d"
        );
        let hair = crate::Ttl::MAX.get() + Duration::from_millis(1);
        assert!(ttl(hair).contains("31622400.001s"), "{}", ttl(hair));
    }

    #[test]
    fn store_errors_say_what_to_do_and_keep_their_source() {
        let io = std::io::Error::other("reset by peer");
        let err = StoreError::with_source(StoreErrorKind::UnknownOutcome, "connection cut", io);
        assert!(err.is_transient() && err.is_unknown_outcome());
        assert_eq!(err.to_string(), "the outcome is unknown: connection cut");
        assert_eq!(err.source().unwrap().to_string(), "reset by peer");
        assert!(!StoreError::refusing("no schema").is_transient());
        let invalid = StoreError::from(InvalidInput::KeyEmpty);
        assert_eq!(invalid.kind(), StoreErrorKind::InvalidInput);
        assert!(invalid.source().unwrap().is::<InvalidInput>());
    }
}
