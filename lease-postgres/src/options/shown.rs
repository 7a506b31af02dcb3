//! What of the options may be shown.

use std::fmt;

use super::PostgresOptions;

/// Says where the server is, and nothing of who logs in and how.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            connect,
            names,
            making,
            connections,
            asynchronous_commit,
            tombstone_retention,
            response_timeout,
            connect_timeout,
            crash_detection,
        } = self;
        let mut shown = f.debug_struct("PostgresOptions");
        match connect.get_socket() {
            Some(folder) => shown.field("socket", folder),
            None => shown.field("host", &connect.get_host()),
        };
        shown
            .field("port", &connect.get_port())
            .field("database", &connect.get_database())
            .field("names", names)
            .field("making", making)
            .field("connections", connections)
            .field("asynchronous_commit", asynchronous_commit)
            .field("tombstone_retention", tombstone_retention)
            .field("response_timeout", response_timeout)
            .field("connect_timeout", connect_timeout)
            .field("crash_detection", crash_detection)
            .finish()
    }
}
