//! Failures in the words of a store.

use std::error::Error;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{Error as Said, ErrorCode};
use async_nats::{ConnectError, ConnectErrorKind};
use lease_core::{StoreError, StoreErrorKind};

use super::link::Set;

type Cause = Box<dyn Error + Send + Sync>;

pub(super) fn refusing(message: impl Into<String>, cause: impl Into<Cause>) -> StoreError {
    StoreError::with_source(StoreErrorKind::Refusing, message, cause)
}

pub(super) fn unavailable(message: impl Into<String>, cause: impl Into<Cause>) -> StoreError {
    StoreError::with_source(StoreErrorKind::Unavailable, message, cause)
}

/// Of an answer that a read got: `Ok` with what to say should it stay so, if it may
/// be another one soon.
pub(super) fn of_read(
    said: &Said,
    stream: &str,
    replicated: bool,
) -> Result<StoreError, StoreError> {
    if said.error_code() == ErrorCode::STREAM_NOT_FOUND {
        let gone = gone(stream, said.clone());
        // A server of a cluster may not have heard of it yet.
        return if replicated { Ok(gone) } else { Err(gone) };
    }
    match said.code() {
        // Of a server, not of what was asked.
        500.. => Ok(unavailable(
            "JetStream cannot read the record just now; try again",
            said.clone(),
        )),
        _ => Err(refusing(
            "JetStream refuses to read the record; see its own words",
            said.clone(),
        )),
    }
}

/// The stream is there no more.
#[derive(Debug, thiserror::Error)]
#[error("there is no such stream")]
struct Gone(#[source] Said);

pub(super) fn is_gone(error: &StoreError) -> bool {
    error.source().is_some_and(|source| source.is::<Gone>())
}

fn gone(stream: &str, cause: Said) -> StoreError {
    refusing(
        format!(
            "the stream {stream} is not there any more, and its grants and tokens with it; once \
             the longest TTL in use has passed, open the store again to have a new one made"
        ),
        Gone(cause),
    )
}

/// Of what a publish met, but for the kinds that say enough.
pub(super) fn of_write(error: PublishError) -> Set {
    let said = error
        .source()
        .and_then(|cause| cause.downcast_ref::<Said>());
    let Some(said) = said.cloned() else {
        return match error.kind() {
            PublishErrorKind::Other | PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => {
                Set::Unknown(StoreError::with_source(
                    StoreErrorKind::UnknownOutcome,
                    "the server did not acknowledge the record",
                    error,
                ))
            }
            _ => Set::Not(not_sent(error)),
        };
    };
    match said.code() {
        500.. => Set::Not(unavailable(
            "JetStream cannot store the record just now; try again, and look at the server's \
             resources and at its log",
            said,
        )),
        _ => Set::Not(refusing(
            "JetStream refuses to store the record; see its own words, and the permissions of \
             this user",
            said,
        )),
    }
}

pub(super) fn not_sent(error: PublishError) -> StoreError {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => refusing(
            "the record is larger than the server takes; raise its max_payload to 64 KiB at least",
            error,
        ),
        _ => unavailable("too many requests are under way; try again", error),
    }
}

pub(super) fn unreadable(cause: impl Into<Cause>) -> StoreError {
    unavailable("the record could not be read; try again", cause)
}

pub(super) fn nobody(stream: &str) -> StoreError {
    StoreError::unavailable(format!(
        "no server takes records of the stream {stream}: it has no leader just now, it was \
         removed, or this user may not publish to it"
    ))
}

pub(super) fn silent(limit: Duration) -> StoreError {
    StoreError::unavailable(format!(
        "JetStream did not answer a read within {limit:?}; the stream may have no leader"
    ))
}

pub(super) fn cut() -> StoreError {
    StoreError::unavailable("the connection ended before the record was read")
}

pub(super) fn no_ack(limit: Duration) -> StoreError {
    StoreError::unknown_outcome(format!(
        "the server did not acknowledge the record within {limit:?}"
    ))
}

pub(super) fn not_verified(cause: StoreError) -> StoreError {
    StoreError::with_source(
        StoreErrorKind::UnknownOutcome,
        "the record was acknowledged, and could not be read again to see whether it was the first",
        cause,
    )
}

pub(super) fn flooded(subject: &str) -> StoreError {
    StoreError::refusing(format!(
        "the subject {subject} is full of records that came at the same time, so that the one \
         that counts may be gone; use fewer clients for this key, and another prefix from now on"
    ))
}

pub(super) fn outrun() -> StoreError {
    StoreError::unavailable("others wrote more than is kept while the record was read; try again")
}

pub(super) fn overtaken() -> StoreError {
    StoreError::unknown_outcome("the record was overtaken before it was read again")
}

pub(super) fn cut_before_ack() -> StoreError {
    StoreError::unknown_outcome("the connection ended before the record was acknowledged")
}

pub(super) fn not_connected(limit: Duration) -> StoreError {
    StoreError::unavailable(format!(
        "there is no connection to a NATS server for {limit:?}; is it running, and its address \
         right?"
    ))
}

pub(super) fn contended() -> StoreError {
    StoreError::unavailable("others changed the record again and again; try again")
}

/// A record that is none of ours.
#[derive(Debug, thiserror::Error)]
#[error("the message's payload is not a record")]
struct Foreign;

pub(super) fn is_foreign(error: &StoreError) -> bool {
    error.source().is_some_and(|source| source.is::<Foreign>())
}

pub(super) fn foreign(subject: &str) -> StoreError {
    let words = format!(
        "what stands at the subject {subject} is not a record of this version of leases; publish \
         nothing there by hand, and use another prefix"
    );
    refusing(words, Foreign)
}

pub(super) fn of_connect(error: ConnectError) -> StoreError {
    let words = match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
            return refusing(
                "the server refuses this user; check the name, the password or the token, or the \
                 file that proves who it is",
                error,
            );
        }
        ConnectErrorKind::Tls => {
            return refusing(
                "TLS failed; name the authority of the server's certificate by \
                 ?ca=/path/authority.pem, and the server as its certificate does",
                error,
            );
        }
        ConnectErrorKind::ServerParse | ConnectErrorKind::Dns => {
            "the server's address leads nowhere; check its name"
        }
        _ => "no NATS server answers; is it running, and its address right?",
    };
    unavailable(words, error)
}

/// Of an answer of JetStream's API about the stream.
pub(super) fn of_api(said: &Said, cause: impl Into<Cause>) -> StoreError {
    match said.code() {
        500.. => unavailable(
            "JetStream cannot serve the stream just now; see its own words, and look at the \
             servers' resources",
            cause,
        ),
        _ => refusing(
            "JetStream refuses the stream; see its own words, and this user's permissions",
            cause,
        ),
    }
}

/// By a server's clock: of use only beside another time of the same server.
pub(super) fn unix_us(time: impl Into<SystemTime>) -> i64 {
    let since = time.into().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// As `unix_us`, in milliseconds.
pub(super) fn unix_ms(time: impl Into<SystemTime>) -> i64 {
    let since = time.into().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
