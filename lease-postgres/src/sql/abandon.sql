-- The key's row first, then the tombstone: whoever changes the version of the
-- row holds its lock, so that nobody is granted the key without having seen the
-- tombstone. A row that is made meanwhile by somebody else is asked for again.
WITH asked AS MATERIALIZED (
    SELECT a.*, {now} AS now
    FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS a (key, owner, n)
), seen AS MATERIALIZED (
    SELECT a.*, k.key IS NOT NULL AS there
    FROM asked AS a LEFT JOIN {keys} AS k ON k.key = a.key
), locked AS MATERIALIZED (
    SELECT s.*, coalesce(k.owner = s.owner AND k.standing <> 1, false) AS own, k.expires_us
    FROM seen AS s JOIN {keys} AS k ON k.key = s.key
    ORDER BY k.key
    FOR UPDATE OF k SKIP LOCKED
), clocked AS MATERIALIZED (
    SELECT l.*, {now} AS at FROM locked AS l
), timed AS MATERIALIZED (
    SELECT c.*, coalesce(c.own AND c.expires_us >= c.at, false) AS frees FROM clocked AS c
), freed AS (
    UPDATE {keys} AS k SET
        version = k.version + 1,
        standing = CASE WHEN t.frees THEN 1 ELSE k.standing END
    FROM timed AS t
    WHERE k.key = t.key
    RETURNING t.n, t.key, t.owner, t.at, t.frees AND k.awaited_us > t.at AS awaited
), made AS (
    INSERT INTO {keys} AS k (key, mark, version, awaited_us)
    SELECT s.key, 0, 1, 0 FROM seen AS s WHERE NOT s.there ORDER BY s.key
    ON CONFLICT (key) DO NOTHING
    RETURNING k.key
), buried AS (
    INSERT INTO {tombstones} AS t (key, owner, reason, until_us)
    SELECT f.key, f.owner, 0, f.at + $3::bigint FROM freed AS f
    UNION ALL
    SELECT s.key, s.owner, 0, s.now + $3::bigint FROM seen AS s WHERE NOT s.there
    ON CONFLICT (key, owner) DO UPDATE
        SET reason = 0, until_us = greatest(t.until_us, excluded.until_us)
)
SELECT f.n, NULL::text AS key, 1 AS code, f.awaited FROM freed AS f
UNION ALL
SELECT NULL, m.key, 1, false FROM made AS m
