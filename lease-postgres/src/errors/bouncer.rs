//! What PgBouncer says by its words alone: it has one code for everything, also for
//! what the server behind it has said by a code of its own.

/// The code by which a server would say the same, where that can be told.
pub(super) fn code_for(words: &str) -> Option<&'static str> {
    let words = words.to_ascii_lowercase();
    let has = |part: &&str| words.contains(part);
    let any = |parts: &[&str]| parts.iter().any(has);
    if any(&["too many c", "no more connections", "connection slots"]) {
        Some("53300")
    } else if any(&["the database system is"]) {
        Some("57P03")
    } else if any(&["no such database"]) || (any(&["database"]) && any(&["does not exist"])) {
        Some("3D000")
    } else if any(&["authentication failed", "no such user", "pg_hba.conf"])
        || any(&["not permitted to log in", "does not exist"])
    {
        Some("28P01")
    } else {
        None
    }
}

/// Whether it gives each statement another session.
pub(super) fn is_by_statement(words: &str) -> bool {
    words.contains("statement pooling mode")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_words_mean_what_the_servers_codes_do() {
        for (words, code) in [
            ("SASL authentication failed", Some("28P01")),
            (
                "password authentication failed for user \"app\"",
                Some("28P01"),
            ),
            ("no such user: app", Some("28P01")),
            ("role \"app\" does not exist", Some("28P01")),
            ("role \"app\" is not permitted to log in", Some("28P01")),
            (
                "no pg_hba.conf entry for host \"::1\", user \"app\"",
                Some("28P01"),
            ),
            ("database \"nowhere\" does not exist", Some("3D000")),
            ("no such database: nowhere", Some("3D000")),
            (
                "no more connections allowed (max_client_conn)",
                Some("53300"),
            ),
            ("too many connections for role \"app\"", Some("53300")),
            ("sorry, too many clients already", Some("53300")),
            ("the database system is starting up", Some("57P03")),
            ("query_wait_timeout", None),
            ("server conn crashed?", None),
        ] {
            assert_eq!(code_for(words), code, "{words}");
        }
    }
}
