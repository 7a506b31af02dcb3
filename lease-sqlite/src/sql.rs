//! The statements that leases run, and the store's clock.

/// SQLite's clock in microseconds since the Unix epoch, to the millisecond
/// (SQLite has it no finer). Within one statement it stands still; it is first
/// asked after the statement's lock is held.
macro_rules! now_us {
    () => {
        "(CAST(round(unixepoch('now', 'subsec') * 1000) AS INTEGER) * 1000)"
    };
}

/// How far apart two readings of the clock are at least, in microseconds.
pub(crate) const CLOCK_STEP_US: i64 = 1_000;

pub(crate) const NOW: &str = concat!("SELECT ", now_us!());

/// The clock, and the rows that belong to three JSON arrays: keys, owners in
/// hexadecimal digits, resources. The first column tells them apart, see
/// [`Kind`]. `CROSS JOIN` keeps the array the outer loop, so that each item is
/// one look into a primary key.
macro_rules! look {
    () => {
        concat!(
            "SELECT 0 AS kind, ",
            now_us!(),
            " AS now_us; \
             SELECT 1 AS kind, k.key, k.mark, k.owner, k.token, k.label, k.granted_us, \
                 k.expires_us, k.standing \
             FROM json_each(?1) AS j CROSS JOIN lease_keys AS k ON k.key = j.value; \
             SELECT 2 AS kind, t.owner, t.reason, t.until_us \
             FROM json_each(?2) AS j CROSS JOIN lease_tombstones AS t ON t.owner = unhex(j.value); \
             SELECT 3 AS kind, g.resource, g.token \
             FROM json_each(?3) AS j CROSS JOIN lease_gate AS g ON g.resource = j.value"
        )
    };
}

/// What a row of a look is.
pub(crate) struct Kind;

impl Kind {
    pub(crate) const CLOCK: i64 = 0;
    pub(crate) const KEY: i64 = 1;
    pub(crate) const TOMBSTONE: i64 = 2;
    pub(crate) const ADMITTED: i64 = 3;
}

/// Takes the write lock and looks, all in one trip to the connection's thread:
/// the fewer trips while the lock is held, the less others wait. The clock is
/// asked after the lock is held.
pub(crate) const LOCK_AND_LOOK: &str = concat!("BEGIN IMMEDIATE; ", look!());

/// Looks at one state of the database without any lock that others wait for.
pub(crate) const LOOK: &str = concat!("BEGIN; ", look!(), "; COMMIT");

pub(crate) const STORE_KEYS: &str = "\
    INSERT INTO lease_keys \
        (key, mark, owner, token, label, granted_us, expires_us, standing) \
    SELECT j.value->>0, j.value->>1, unhex(j.value->>2), j.value->>3, j.value->>4, \
        j.value->>5, j.value->>6, j.value->>7 \
    FROM json_each(?1) AS j WHERE true \
    ON CONFLICT (key) DO UPDATE SET \
        mark = excluded.mark, owner = excluded.owner, token = excluded.token, \
        label = excluded.label, granted_us = excluded.granted_us, \
        expires_us = excluded.expires_us, standing = excluded.standing";

pub(crate) const STORE_TOMBSTONES: &str = "\
    INSERT INTO lease_tombstones (owner, reason, until_us) \
    SELECT unhex(j.value->>0), j.value->>1, j.value->>2 FROM json_each(?1) AS j WHERE true \
    ON CONFLICT (owner) DO UPDATE SET reason = excluded.reason, until_us = excluded.until_us";

pub(crate) const STORE_GATE: &str = "\
    INSERT INTO lease_gate (resource, token) \
    SELECT j.value->>0, j.value->>1 FROM json_each(?1) AS j WHERE true \
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token";

/// Forgets at most `?2` tombstones whose time is over.
pub(crate) const PURGE_TOMBSTONES: &str = "\
    DELETE FROM lease_tombstones WHERE owner IN \
    (SELECT owner FROM lease_tombstones WHERE until_us <= ?1 ORDER BY until_us LIMIT ?2)";

/// One key, with the clock: a row even for a key without one.
pub(crate) const INSPECT: &str = concat!(
    "SELECT ",
    now_us!(),
    " AS now_us, k.key, k.mark, k.owner, k.token, k.label, k.granted_us, k.expires_us, k.standing \
     FROM (SELECT 1) LEFT JOIN lease_keys AS k ON k.key = ?1"
);

/// A page of keys from `?1` on.
pub(crate) const PAGE_FROM: &str = concat!(
    "SELECT ",
    now_us!(),
    " AS now_us, key, mark, owner, token, label, granted_us, expires_us, standing \
     FROM lease_keys WHERE key >= ?1 ORDER BY key LIMIT ?2"
);

/// A page of keys after `?1`.
pub(crate) const PAGE_AFTER: &str = concat!(
    "SELECT ",
    now_us!(),
    " AS now_us, key, mark, owner, token, label, granted_us, expires_us, standing \
     FROM lease_keys WHERE key > ?1 ORDER BY key LIMIT ?2"
);

/// Which keys of a JSON array nothing blocks.
pub(crate) const FREE_KEYS: &str = concat!(
    "SELECT j.value FROM json_each(?1) AS j LEFT JOIN lease_keys AS k ON k.key = j.value \
     WHERE k.standing IS NULL OR k.standing = 1 OR k.expires_us < ",
    now_us!()
);

/// Changes with every commit of another connection.
pub(crate) const DATA_VERSION: &str = "PRAGMA data_version";

/// Admits a token and remembers it in one step, or changes nothing.
pub(crate) const ADMIT: &str = "\
    INSERT INTO lease_gate (resource, token) VALUES (?1, ?2) \
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token \
    WHERE lease_gate.token BETWEEN 1 AND excluded.token \
    RETURNING token";

pub(crate) const ADMITTED: &str = "SELECT token FROM lease_gate WHERE resource = ?1";

/// Writes without a change, to see how long a durable write takes.
pub(crate) const PROBE: &str = "UPDATE lease_schema SET version = version";
