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
    let detail = error.detail().unwrap_or_default();
    let (kind, advice) = match server_code(&error) {
        Some(code) => match by_code(meant(&code, detail)) {
            Some(known) => known,
            None if phase == Phase::Sent => (
                StoreErrorKind::UnknownOutcome,
                "that is no answer that Redis gives before it does something; see whether a proxy \
                 stands between, and its log",
            ),
            None => (StoreErrorKind::Refusing, OTHER),
        },
        None => by_driver(phase, &error),
    };
    let words = error.to_string();
    // Redis ends some sentences, and ours goes on.
    let words = words.trim_end_matches('.');
    StoreError::with_source(kind, format!("{doing}: {words}; {advice}"), error)
}

/// As [`classify`], for an error that a script caught at `record`: nothing of
/// that operation took effect.
pub(crate) fn caught(doing: &str, text: &str) -> StoreError {
    let text = plain(text).trim_end_matches('.');
    let (code, words) = text.split_once(' ').unwrap_or((text, ""));
    let (kind, advice) = by_code(meant(code, words)).unwrap_or((StoreErrorKind::Refusing, OTHER));
    StoreError::new(kind, format!("{doing}: {text}; {advice}"))
}

/// The code of an error that a script caught, or what its words mean.
pub(crate) fn meant_by(text: &str) -> &str {
    let text = plain(text);
    let (code, words) = text.split_once(' ').unwrap_or((text, ""));
    meant(code, words)
}

/// The code of an error that a script caught.
pub(crate) fn code(text: &str) -> &str {
    let text = plain(text);
    text.split(' ').next().unwrap_or(text)
}

/// Redis 6 puts the place in the script in front: `@user_script: 40: -READONLY …`.
fn plain(text: &str) -> &str {
    match text.split_once(": -") {
        Some((place, error)) if place.starts_with('@') => error,
        _ => text,
    }
}

/// The code of an error that the server answered.
fn server_code(error: &RedisError) -> Option<String> {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension => {
            Some(error.code().unwrap_or("ERR").to_owned())
        }
        // The driver's own word for what the server says at a login.
        ErrorKind::AuthenticationFailed => Some("WRONGPASS".to_owned()),
        // And for a database that it does not give.
        ErrorKind::UnexpectedReturnType | ErrorKind::InvalidClientConfig
            if error.to_string().contains("switch database") =>
        {
            Some("DATABASE".to_owned())
        }
        _ => None,
    }
}

/// What the server has no code of its own for, by its words.
fn meant<'a>(code: &'a str, words: &str) -> &'a str {
    if code != "ERR" {
        return code;
    }
    let known: [(&str, &str); 11] = [
        // Redis 7.0, of the user of a script.
        ("The user executing the script can't", "NOPERM"),
        // Before the login it reads no more than ten arguments.
        ("Protocol error: unauthenticated", "NOAUTH"),
        ("unknown command", "UNKNOWN"),
        ("Unknown", "UNKNOWN"),
        ("DB index is out of range", "DATABASE"),
        ("max number of clients", "CLIENTS"),
        ("This instance has cluster support", "NOCLUSTER"),
        // A script in a slot that is on its way to another node.
        ("Script attempted to access a non local key", "TRYAGAIN"),
        ("Lua script attempted to access a non local key", "TRYAGAIN"),
        (
            "Script attempted to execute a command while the cluster is down",
            "CLUSTERDOWN",
        ),
        (
            "Script attempted to execute a write command while the cluster is down",
            "CLUSTERDOWN",
        ),
    ];
    let known = known.iter().find(|(begin, _)| words.starts_with(begin));
    known.map_or(code, |(_, code)| code)
}

const OTHER: &str = "check that this is a Redis server of version 6 or later that may run scripts";

/// An error reply that Redis gives before it does anything: the request had no
/// effect. `None` for one that is not known.
fn by_code(code: &str) -> Option<(StoreErrorKind, &'static str)> {
    use StoreErrorKind::{Refusing, Unavailable};
    Some(match code {
        "LOADING" => (
            Unavailable,
            "the server is reading its data from the disk; try again",
        ),
        "BUSY" => (
            Unavailable,
            "another script keeps the server busy; try again, and see who runs it",
        ),
        "TRYAGAIN" => (
            Unavailable,
            "the slot of this key is on its way to another node; try again when it is there",
        ),
        "CLUSTERDOWN" => (
            Unavailable,
            "the cluster does not serve this key now; try again, and bring its primaries back or \
             see cluster-require-full-coverage",
        ),
        "MASTERDOWN" => (Unavailable, "try again"),
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
            "give the user the rights that the page of lease-redis lists (with a quarantine +info too, \
             with wait_for_replicas +wait); `lease doctor` says which are missing",
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
            "something that is not the store's stands at a name of the store's and was left as it \
             is; remove it, or give leases a prefix of their own",
        ),
        "QUARANTINE" => (
            Refusing,
            "give all clients of the prefix the same quarantine; to change it, see the page of lease-redis",
        ),
        "CROSSSLOT" => (
            Refusing,
            "in a Redis Cluster all names of one script must share a slot: open leases by \
             redis+cluster://, and give the data of a fenced write the resource as its hash tag, \
             as name:{resource}",
        ),
        "MOVED" | "ASK" => (
            Refusing,
            "this server is part of a Redis Cluster; write redis+cluster:// in the URL, or name a \
             server of its own",
        ),
        "NOCLUSTER" => (
            Refusing,
            "this server is no part of a Redis Cluster; write redis:// in the URL",
        ),
        "DATABASE" => (
            Refusing,
            "give the user the right +select, and name a database that the server has (see \
             `databases` in its configuration)",
        ),
        "CLIENTS" => (
            Unavailable,
            "the server takes no more connections; raise maxclients or close some",
        ),
        "UNKNOWN" => (Refusing, OTHER),
        _ => return None,
    })
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
        (Phase::Unsent, ErrorKind::InvalidClientConfig | ErrorKind::Client) => {
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
            "check that the server runs, can be reached from here, and speaks TLS at that port if \
             the URL begins with rediss: and only then",
        ),
        (_, ErrorKind::RESP3NotSupported) => (Refusing, "use ?protocol=resp2 in the URL"),
        (Phase::Unsent, _) => (Unavailable, "check that this is a Redis server"),
        (Phase::Sent, _) => (
            UnknownOutcome,
            "the connection failed before the answer came; the request may have taken effect",
        ),
    }
}
