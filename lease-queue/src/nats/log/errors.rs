//! What goes wrong with a log, in the words of a store.

use std::error::Error;

use lease_core::{StoreError, StoreErrorKind};

use super::message::Unreadable;
use super::replica::LOG_MAX;

type Cause = Box<dyn Error + Send + Sync>;

pub(super) fn unwritable(cause: impl Into<Cause>) -> StoreError {
    let words = "the operation cannot be written";
    StoreError::with_source(StoreErrorKind::Refusing, words, cause)
}

pub(super) fn too_large(bytes: usize, most: usize) -> StoreError {
    StoreError::new(
        StoreErrorKind::InvalidInput,
        format!(
            "the operation has {bytes} bytes, and a message of this server takes {most}; make \
             it smaller, or raise the server's max_payload"
        ),
    )
}

pub(super) fn unreadable(subject: &str, revision: u64, why: Unreadable) -> StoreError {
    StoreError::refusing(match why {
        Unreadable::Foreign => format!(
            "message {revision} at the subject {subject} is not one of leases; publish nothing \
             there by hand, and use another queue or another prefix from now on"
        ),
        Unreadable::Newer => format!(
            "message {revision} at the subject {subject} was written by a newer version of \
             leases; use that version here as well"
        ),
    })
}

pub(super) fn no_beginning(subject: &str) -> StoreError {
    StoreError::refusing(format!(
        "the beginning of the log at the subject {subject} is gone, and no snapshot that \
         covers it can be read; restore the stream of the snapshots, or use another queue"
    ))
}

pub(super) fn started_anew() -> StoreError {
    StoreError::unknown_outcome(
        "the log is not the one any more in which the operation was written: its end was lost",
    )
}

pub(super) fn not_sent_anew() -> StoreError {
    StoreError::unavailable("the end of the log was lost, and the queue read anew; try again")
}

pub(super) fn ended() -> StoreError {
    StoreError::unknown_outcome("the queue's log was closed before the operation came by in it")
}

/// Of what was not sent in time, and what was in the way.
pub(super) fn not_sent(trouble: Option<StoreError>) -> StoreError {
    let words = "the operation was not sent in time, and has no effect";
    match trouble {
        None => StoreError::unavailable(words),
        Some(trouble) => StoreError::with_source(
            StoreErrorKind::Unavailable,
            format!("{words}: {}", trouble.message()),
            trouble,
        ),
    }
}

/// Of what was sent and did not come by in time.
pub(super) fn not_seen(trouble: Option<StoreError>) -> StoreError {
    let words = "the operation was sent, and did not come by in the log in time";
    match trouble {
        None => StoreError::unknown_outcome(words),
        Some(trouble) => StoreError::with_source(
            StoreErrorKind::UnknownOutcome,
            format!("{words}: {}", trouble.message()),
            trouble,
        ),
    }
}

pub(super) fn not_read(trouble: Option<StoreError>) -> StoreError {
    let words = "the log was not read to its end in time";
    match trouble {
        None => StoreError::unavailable(words),
        Some(trouble) => StoreError::with_source(
            StoreErrorKind::Unavailable,
            format!("{words}: {}", trouble.message()),
            trouble,
        ),
    }
}

pub(super) fn no_snapshot(cause: StoreError) -> StoreError {
    let words = format!(
        "the queue's snapshots cannot be written: {}",
        cause.message()
    );
    StoreError::with_source(StoreErrorKind::Unavailable, words, cause)
}

pub(super) fn full() -> StoreError {
    StoreError::unavailable(format!(
        "more than {LOG_MAX} messages of the log are covered by no snapshot, and none could be \
         written yet; see to it that this user may write to the stream of the snapshots, and \
         that it has room"
    ))
}
