//! What Postgres's failures mean for a lease.

mod bouncer;

use std::io;

use lease_core::{StoreError, StoreErrorKind};
use sqlx::Error;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// How far a request had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It was not sent, or changes nothing.
    Unsent,
    /// It may have been received.
    Sent,
}

/// Puts a failure into the contract's words.
pub(crate) fn classify(phase: Phase, doing: &str, error: Error) -> StoreError {
    let (kind, advice) = match server(&error) {
        Some(said) if is_by_statement(said) => (
            StoreErrorKind::Refusing,
            "the pooler has pool_mode = statement, where there are no transactions; set pool_mode \
             = transaction or session for this database",
        ),
        Some(said) if is_stale(said) => (
            StoreErrorKind::Unavailable,
            "the session was not as the store had left it (somebody altered a table of the store's, \
             or a pooler gives the session to others, too); nothing took effect, try again",
        ),
        // It may have come before the request or after its commit.
        Some(said) if phase == Phase::Sent && ends_session(said) => (
            StoreErrorKind::UnknownOutcome,
            "the server ended the session; the request may have taken effect",
        ),
        Some(_) if refused_at_start(&error) => (
            StoreErrorKind::Refusing,
            "leave these options out of the URL, or name what the pooler refuses in PgBouncer's \
             ignore_startup_parameters; it has no effect then",
        ),
        Some(said) if code(said) == "53300" => (StoreErrorKind::Unavailable, no_room(said)),
        Some(said) => by_code(code(said)),
        None => by_driver(phase, &error),
    };
    let words = match server(&error) {
        Some(said) => format!("{} ({})", said.message(), said.code()),
        None => error.to_string(),
    };
    let words = words.trim_end_matches('.');
    let words = format!("{doing}: {words}; {advice}");
    match server(&error) {
        // Its words are there already.
        Some(_) => StoreError::new(kind, words),
        None => StoreError::with_source(kind, words, error),
    }
}

/// What the server said, if it did.
fn server(error: &Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

fn ends_session(said: &PgDatabaseError) -> bool {
    // A pooler in between says the latter of a server that it lost.
    matches!(said.severity(), PgSeverity::Fatal | PgSeverity::Panic)
        || said.code().starts_with("08")
}

/// PgBouncer's words in the server's codes.
fn code(said: &PgDatabaseError) -> &str {
    match said.code() {
        "08P01" => bouncer::code_for(said.message()).unwrap_or("08P01"),
        // The server has it for other things, too.
        "0A000" if is_standbys(said) => "25006",
        other => other,
    }
}

fn is_by_statement(said: &PgDatabaseError) -> bool {
    said.code() == "08P01" && bouncer::is_by_statement(said.message())
}

/// Whether there is a pooler that gives each statement another session.
pub(crate) fn by_statement(error: &Error) -> bool {
    server(error).is_some_and(is_by_statement)
}

/// A prepared statement is not there, is somebody else's, or is not what it was. The
/// server said so before it did anything.
fn is_stale(said: &PgDatabaseError) -> bool {
    match said.code() {
        "26000" | "42P05" => true,
        // "cached plan must not change result type", in any language.
        "0A000" => said.routine() == Some("RevalidateCachedQuery"),
        _ => false,
    }
}

/// Whether a prepared statement was not as the store had left it: nothing took effect,
/// and the connection is of no more use.
pub(crate) fn stale(error: &Error) -> bool {
    server(error).is_some_and(is_stale)
}

/// Whether a standby was asked for a transaction that writes, or a serializable one.
fn is_standbys(said: &PgDatabaseError) -> bool {
    let standbys = [
        "check_transaction_read_only",
        "check_XactReadOnly",
        "GetSerializableTransactionSnapshot",
    ];
    said.code() == "0A000" && said.routine().is_some_and(|one| standbys.contains(&one))
}

/// Whether the connection is of no more use, and whatever was under way on it
/// may have taken effect. An error that is not is the end of one statement,
/// which was rolled back.
pub(crate) fn spoils(error: &Error) -> bool {
    server(error).is_none_or(ends_session)
}

/// Whether nobody is let in by this user and this password.
pub(crate) fn refuses_login(error: &Error) -> bool {
    server(error).is_some_and(|said| matches!(code(said), "28P01" | "28000"))
}

/// Whether the statement was rolled back because of others' statements, and is
/// to be asked again.
pub(crate) fn raced(error: &Error) -> bool {
    server(error).is_some_and(|said| {
        // Serialization failure, deadlock, a lock that was not to be had in time.
        !ends_session(said) && matches!(said.code(), "40001" | "40P01" | "55P03")
    })
}

/// Whether the server takes no changes: it is, or has become, a standby.
pub(crate) fn read_only(error: &Error) -> bool {
    server(error).is_some_and(|said| code(said) == "25006")
}

/// Whether a pooler refuses what a connection starts with.
pub(crate) fn refused_at_start(error: &Error) -> bool {
    // PgBouncer has this code for many things.
    server(error).is_some_and(|said| {
        matches!(said.code(), "08P01" | "0A000") && said.message().contains("startup parameter")
    })
}

/// Whether the tables or their functions are gone: somebody dropped them, or the server came back
/// without them.
pub(crate) fn tables_gone(error: &Error) -> bool {
    server(error).is_some_and(|said| matches!(said.code(), "42P01" | "3F000" | "42883"))
}

/// Whose limit of connections is reached.
fn no_room(said: &PgDatabaseError) -> &'static str {
    // In any language; a pooler passes on the words alone.
    let by = |routine, words| said.routine() == Some(routine) || said.message().contains(words);
    if by("InitializeSessionUserId", "for role") {
        "the role's CONNECTION LIMIT is reached; raise it (ALTER ROLE … CONNECTION LIMIT), close \
         some, or give the store fewer by ?connections= in the URL"
    } else if by("CheckMyDatabase", "for database") {
        "the database's CONNECTION LIMIT is reached; raise it (ALTER DATABASE … CONNECTION LIMIT), \
         close some, or give the store fewer by ?connections= in the URL"
    } else {
        by_code("53300").1
    }
}

/// An error after which nothing has taken effect.
fn by_code(code: &str) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Refusing, Unavailable};
    match code {
        "53300" => (
            Unavailable,
            "the server takes no more connections; raise max_connections, close some, or give \
             the store fewer",
        ),
        "57P03" => (
            Unavailable,
            "the server is starting up, shutting down or recovering; try again",
        ),
        "57014" | "55P03" => (
            Unavailable,
            "it took too long; look for long transactions, a busy disk, or a standby that does \
             not confirm",
        ),
        "54000" => (
            Unavailable,
            "the queue of notifications is full; look for a listener in a long transaction",
        ),
        "25006" => (
            Refusing,
            "this server is a standby or read-only; name the primary in the URL",
        ),
        "28P01" | "28000" => (
            Refusing,
            "give a user and a password that the server knows, and see pg_hba.conf",
        ),
        "3D000" => (Refusing, "create the database, or name another in the URL"),
        "42501" => (
            Refusing,
            "give the role the rights that `lease schema --role` prints for it",
        ),
        "42P01" | "3F000" | "42703" | "42883" => (
            Refusing,
            "tables, columns or functions are missing or not the store's own; let the store make \
             them, or run what `lease schema` prints for it",
        ),
        "42804" | "42P10" => (
            Refusing,
            "a column's type, or a table's key, is not what the store makes; put it right as \
             `lease schema` prints it, or choose another schema or table prefix",
        ),
        "53100" => (Refusing, "the server's disk is full; make room"),
        "42704" => (
            Refusing,
            "the store needs Postgres 12 or later, with its language plpgsql",
        ),
        _ => match code.get(..2).unwrap_or_default() {
            "40" => (Unavailable, "try again"),
            "08" | "57" => (Unavailable, "see whether the server runs, and its log"),
            "53" => (Unavailable, "the server is short of something; see its log"),
            "28" => (Refusing, "see pg_hba.conf and the role's settings"),
            "22" | "23" => (
                Refusing,
                "something that is not the store's stands in a table of the store's and was left \
                 as it is; repair or delete it",
            ),
            _ => (Refusing, "see the server's log"),
        },
    }
}

/// Whether TLS could not be agreed on. Its library says so by the kind of an
/// error of input and output, too.
fn is_tls(error: &Error) -> bool {
    match error {
        Error::Tls(_) => true,
        Error::Io(error) => error.kind() == io::ErrorKind::InvalidData,
        _ => false,
    }
}

fn by_driver(phase: Phase, error: &Error) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{InvalidInput, Refusing, Unavailable, UnknownOutcome};
    match (phase, error) {
        (Phase::Sent, _) => (
            UnknownOutcome,
            "the connection failed before the answer came; the request may have taken effect",
        ),
        (Phase::Unsent, Error::Configuration(_)) => (InvalidInput, "check the URL and the options"),
        (Phase::Unsent, error) if is_tls(error) => (
            Refusing,
            "TLS failed: see whether the server speaks TLS, name its authority by ?sslrootcert= in \
             the URL if the system does not know it, and give ?sslcert= and ?sslkey= if the server \
             asks for a certificate",
        ),
        (Phase::Unsent, Error::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            (Refusing, "let this user use the socket")
        }
        (Phase::Unsent, Error::Protocol(_)) => {
            (Unavailable, "check that this is a Postgres server")
        }
        (Phase::Unsent, _) => (
            Unavailable,
            "check that the server runs and can be reached from here",
        ),
    }
}

/// An answer that is none of the statements'.
pub(crate) fn odd() -> StoreError {
    StoreError::unknown_outcome(
        "the server gave an answer that belongs to no statement of the store; see whether the \
         tables are the store's own, and whether a proxy stands between",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_a_caller_can_do() {
        use StoreErrorKind::{Refusing, Unavailable};
        for (code, kind) in [
            ("40001", Unavailable),
            ("40P01", Unavailable),
            ("55P03", Unavailable),
            ("57014", Unavailable),
            ("57P01", Unavailable),
            ("57P02", Unavailable),
            ("57P03", Unavailable),
            ("53200", Unavailable),
            ("53300", Unavailable),
            ("08000", Unavailable),
            ("08006", Unavailable),
            ("08P01", Unavailable),
            ("53100", Refusing),
            ("25006", Refusing),
            ("0A000", Refusing),
            ("28P01", Refusing),
            ("28000", Refusing),
            ("3D000", Refusing),
            ("3F000", Refusing),
            ("42501", Refusing),
            ("42P01", Refusing),
            ("23505", Refusing),
            ("42804", Refusing),
            ("42P10", Refusing),
            ("42883", Refusing),
            ("XX001", Refusing),
            ("XX002", Refusing),
            ("", Refusing),
        ] {
            assert_eq!(by_code(code).0, kind, "{code}");
        }
    }
}
