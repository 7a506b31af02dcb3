//! What Redis's failures mean for a lease.

use std::error::Error;
use std::io;
use std::sync::Arc;

use lease_core::{StoreError, StoreErrorKind};
use redis::{ErrorKind, RedisError};

/// How far a request had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It was not sent.
    Unsent,
    /// It may have been received.
    Sent,
}

/// Puts a failure into the contract's words.
pub(crate) fn classify(phase: Phase, doing: &str, error: RedisError) -> StoreError {
    let (kind, advice) = match server_code(&error) {
        Some(code) => by_code(meant(&code, error.detail().unwrap_or_default())),
        None => by_driver(phase, &error),
    };
    StoreError::with_source(kind, format!("{doing}: {error}; {advice}"), error)
}

/// As [`classify`], for an error that a script caught: nothing of that
/// operation took effect.
pub(crate) fn caught(doing: &str, text: &str) -> StoreError {
    let (code, words) = text.split_once(' ').unwrap_or((text, ""));
    let (kind, advice) = by_code(meant(code, words));
    StoreError::new(kind, format!("{doing}: {text}; {advice}"))
}

/// The code of an error that the server answered.
fn server_code(error: &RedisError) -> Option<String> {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => {
            Some(error.code().unwrap_or("ERR").to_owned())
        }
        // The driver's own word for what the server says at a login.
        ErrorKind::AuthenticationFailed => Some("WRONGPASS".to_owned()),
        _ => None,
    }
}

/// Redis 7.0 has no code of its own for what the user of a script may not do.
fn meant<'a>(code: &'a str, words: &str) -> &'a str {
    if code == "ERR" && words.starts_with("The user executing the script can't") {
        return "NOPERM";
    }
    code
}

/// An error reply: the request had no effect.
fn by_code(code: &str) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Refusing, Unavailable};
    match code {
        "LOADING" => (
            Unavailable,
            "the server is reading its data from the disk; try again",
        ),
        "BUSY" => (
            Unavailable,
            "another script keeps the server busy; try again, and see who runs it",
        ),
        "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" => (Unavailable, "try again"),
        "NOREPLICAS" => (
            Unavailable,
            "fewer replicas are connected than min-replicas-to-write asks for; bring them back",
        ),
        "NOAUTH" | "WRONGPASS" => (
            Refusing,
            "give a user name and a password that the server knows in the URL",
        ),
        "NOPERM" => (
            Refusing,
            "give the user the rights that the page of lease-redis lists; `lease doctor` says which are missing",
        ),
        "READONLY" => (
            Refusing,
            "this server is a replica; name the primary in the URL",
        ),
        "OOM" => (
            Refusing,
            "the server has reached maxmemory; raise it, or remove data",
        ),
        "MISCONF" => (
            Refusing,
            "the server cannot save its data and refuses writes; see its log and its disk",
        ),
        "WRONGTYPE" | "FOREIGN" => (
            Refusing,
            "something that is not a lease stands at the lease's name and was left as it is; \
             remove it, or give leases a prefix of their own",
        ),
        "CROSSSLOT" | "MOVED" | "ASK" => (
            Refusing,
            "this server is part of a cluster; use a URL for a cluster",
        ),
        _ => (
            Refusing,
            "check that this is a Redis server of version 6 or later that may run scripts",
        ),
    }
}

/// Whether TLS could not be agreed on. Its library says so by the kind of an
/// error of input and output; trying again would not help.
fn is_tls(error: &RedisError) -> bool {
    let source = error.source();
    source
        // The driver gives its own box for the source.
        .and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>())
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
}

fn by_driver(phase: Phase, error: &RedisError) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{InvalidInput, Refusing, Unavailable, UnknownOutcome};
    match (phase, error.kind()) {
        (_, ErrorKind::InvalidClientConfig | ErrorKind::Client) => {
            (InvalidInput, "check the URL and the options")
        }
        (Phase::Unsent, ErrorKind::Io) if is_tls(error) => (
            Refusing,
            "TLS failed: check that the server speaks TLS, name its authority by ?ca= in the URL if \
             the system does not know it, and give ?cert= and ?key= if the server asks for a \
             certificate",
        ),
        (Phase::Unsent, ErrorKind::Io) => (
            Unavailable,
            "check that the server runs and can be reached from here",
        ),
        (_, ErrorKind::RESP3NotSupported) => (Refusing, "use ?protocol=resp2 in the URL"),
        (Phase::Unsent, _) => (Unavailable, "check that this is a Redis server"),
        (Phase::Sent, _) => (
            UnknownOutcome,
            "the connection failed before the answer came; the request may have taken effect",
        ),
    }
}
