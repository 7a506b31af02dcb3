CREATE TABLE IF NOT EXISTS lease_schema (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    version INTEGER NOT NULL
) STRICT;

-- One row for every key that was ever granted or fenced. `mark` outlives every
-- grant; the other columns are the last grant, live or not, or all NULL.
-- Times are microseconds since the Unix epoch. Standing: 0 granted,
-- 1 released, 2 revoked.
CREATE TABLE IF NOT EXISTS lease_keys (
    key TEXT NOT NULL COLLATE BINARY PRIMARY KEY,
    mark INTEGER NOT NULL,
    owner BLOB,
    token INTEGER,
    label TEXT,
    granted_us INTEGER,
    expires_us INTEGER,
    standing INTEGER
) STRICT, WITHOUT ROWID;

-- Owners that must never be granted anything again. Reason: 1 abandoned,
-- 2 revoked.
CREATE TABLE IF NOT EXISTS lease_tombstones (
    owner BLOB NOT NULL PRIMARY KEY,
    reason INTEGER NOT NULL,
    until_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS lease_tombstones_until ON lease_tombstones (until_us);
