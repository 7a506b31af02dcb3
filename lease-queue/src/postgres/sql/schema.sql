-- Times are microseconds since the Unix epoch by the server's clock, so that no
-- setting of a session (TimeZone, DateStyle) can change what they mean.

-- One row. A program works with these tables if its own version is at least
-- "compatible".
CREATE TABLE IF NOT EXISTS {queue_schema} (
    "only" boolean PRIMARY KEY DEFAULT true CHECK ("only"),
    version integer NOT NULL,
    compatible integer NOT NULL
);

-- What has one owner at a time: a group (0), an item without one (1), a key (2).
-- The rows of groups and keys are never deleted, so that their tokens never start
-- again; an item's goes with it.
CREATE TABLE IF NOT EXISTS {queue_lanes} (
    -- Compared byte for byte.
    queue text COLLATE "C",
    kind smallint,
    -- Of an item, its identity in hexadecimal digits.
    name text COLLATE "C",
    -- The highest token ever granted or honoured; 0 if there was none.
    mark bigint NOT NULL DEFAULT 0,
    -- The item of the last claim; of an item's lane, the item.
    item bytea,
    -- The last claim, and where it stands: 0 granted, 1 settled, 2 revoked and in the
    -- way until it expires, 3 abandoned. All of it or nothing.
    owner bytea,
    token bigint,
    label text,
    granted_us bigint,
    expires_us bigint,
    standing smallint,
    -- When its first item may be claimed, by a delay or by the end of a claim; null
    -- while it has none, and of a key. Never later than that.
    next_us bigint,
    -- Of that item: who has waited for as long goes by this.
    place bigint,
    PRIMARY KEY (queue, kind, name)
-- No checks: what is not the store's is refused when it is read. Room for the next
-- version of a row on its own page: the renewal of a key touches no index.
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS {local:queue_lanes_next} ON {queue_lanes} (queue, next_us, place)
    WHERE next_us IS NOT NULL;
CREATE INDEX IF NOT EXISTS {local:queue_lanes_own} ON {queue_lanes} (owner)
    WHERE standing IN (0, 2);

-- Items that are not completed.
CREATE TABLE IF NOT EXISTS {queue_items} (
    queue text COLLATE "C",
    id bytea,
    -- The order of the puts; of dead ones, that in which they died.
    seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    grp text COLLATE "C",
    dedup text COLLATE "C",
    body bytea NOT NULL,
    put_us bigint NOT NULL,
    ready_us bigint NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    -- 0 in the queue, claimed or not; 1 dead.
    state smallint NOT NULL DEFAULT 0,
    -- Why it is dead, and what the last failed attempt said.
    reason text,
    last_error text,
    PRIMARY KEY (queue, id)
) WITH (fillfactor = 85);
CREATE INDEX IF NOT EXISTS {local:queue_items_seq} ON {queue_items} (queue, state, seq)
    WHERE seq > 0;
CREATE INDEX IF NOT EXISTS {local:queue_items_grp} ON {queue_items} (queue, grp, seq)
    WHERE state = 0 AND grp IS NOT NULL;

-- Claims that their owners settled, for a while: so that a repeated request can be
-- told, and an item that was completed is not put again.
CREATE TABLE IF NOT EXISTS {queue_settled} (
    queue text COLLATE "C",
    item bytea,
    token bigint,
    owner bytea NOT NULL,
    completed boolean NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (queue, item, token)
);
CREATE INDEX IF NOT EXISTS {local:queue_settled_t} ON {queue_settled} (until_us)
    WHERE until_us > 0;

-- Owners that were abandoned (0) or revoked (1) and must not be granted anything.
CREATE TABLE IF NOT EXISTS {queue_tombs} (
    queue text COLLATE "C",
    owner bytea,
    reason smallint NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (queue, owner)
);
CREATE INDEX IF NOT EXISTS {local:queue_tombs_t} ON {queue_tombs} (until_us)
    WHERE until_us > 0;

-- Who waits for a key, in the order of the numbers. In no log, so that no answer waits
-- for a disk because of it: a crash empties it, and those who wait take new places. No
-- index but the key: a place is prolonged at each request.
CREATE UNLOGGED TABLE IF NOT EXISTS {queue_waiters} (
    queue text COLLATE "C",
    key text COLLATE "C",
    owner bytea,
    seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    label text NOT NULL,
    since_us bigint NOT NULL,
    until_us bigint NOT NULL,
    -- Somebody behind it was granted the key since it last asked.
    missed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (queue, key, owner)
) WITH (fillfactor = 70);

-- Which item has a deduplication key, and until when; for ever while it is in the
-- queue.
CREATE TABLE IF NOT EXISTS {queue_dedup} (
    queue text COLLATE "C",
    key text COLLATE "C",
    item bytea NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (queue, key)
);
CREATE INDEX IF NOT EXISTS {local:queue_dedup_t} ON {queue_dedup} (until_us)
    WHERE until_us > 0;
