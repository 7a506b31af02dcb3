-- Times are microseconds since the Unix epoch by the server's clock, so that no
-- setting of a session (TimeZone, DateStyle) can change what they mean.

-- One row. A program works with these tables if its own version is at least
-- "compatible".
CREATE TABLE IF NOT EXISTS {schema} (
    "only" boolean PRIMARY KEY DEFAULT true CHECK ("only"),
    version integer NOT NULL,
    compatible integer NOT NULL
);

-- One row for each key that was ever asked for; it is never deleted, so that
-- its tokens never start again.
CREATE TABLE IF NOT EXISTS {keys} (
    -- Compared byte for byte.
    key text COLLATE "C" PRIMARY KEY,
    -- The highest token ever granted or honoured; 0 if there was none.
    mark bigint NOT NULL,
    -- Raised by every change but a renewal.
    version bigint NOT NULL,
    -- Until when a change that frees the key is to be told to those who wait.
    awaited_us bigint NOT NULL,
    -- The last grant, and where it stands: 0 granted, 1 released, 2 revoked and
    -- in the way until it expires. All of it or nothing.
    owner bytea,
    token bigint,
    label text,
    granted_us bigint,
    expires_us bigint,
    standing smallint,
    -- The session that the grant's holder lives by: the number of an advisory lock
    -- that it keeps while it is connected, and how long after its loss the grant
    -- still stands. Both or neither.
    session bigint,
    grace_us bigint
-- No checks: Postgres would read and plan them anew for each statement, for longer
-- than the statement takes. What is not the store's is refused when it is read, and
-- never granted over while it may be a live grant.
-- No index on anything that a renewal changes, and room for the next version of
-- a row on its own page: a renewal touches no index.
) WITH (fillfactor = 60);

-- Owners that were abandoned (0) or revoked (1) and must not be granted a key.
CREATE TABLE IF NOT EXISTS {tombstones} (
    key text COLLATE "C",
    owner bytea CHECK (octet_length(owner) = 16),
    reason smallint NOT NULL CHECK (reason IN (0, 1)),
    until_us bigint NOT NULL,
    PRIMARY KEY (key, owner)
);
-- For the purge alone. Were it not partial, a plan made over the empty table, which a
-- connection keeps, would look an owner up by reading through all of it.
CREATE INDEX IF NOT EXISTS {tombstones_until} ON {tombstones} (until_us) WHERE until_us > 0;

-- The highest token that was admitted at each resource.
CREATE TABLE IF NOT EXISTS {gate} (
    resource text COLLATE "C" PRIMARY KEY CHECK (octet_length(resource) BETWEEN 1 AND 512),
    token bigint NOT NULL CHECK (token BETWEEN 1 AND 9007199254740991)
) WITH (fillfactor = 60);
