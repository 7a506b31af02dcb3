-- As for abandoning: the key's row first, then the tombstone of a revoked owner.
WITH asked AS MATERIALIZED (
    SELECT a.*
    FROM unnest($1::text[], $2::bigint[], $3::boolean[])
        WITH ORDINALITY AS a (key, at_least, at_once, n)
), seen AS MATERIALIZED (
    SELECT a.*, k.key IS NOT NULL AS there
    FROM asked AS a LEFT JOIN {keys} AS k ON k.key = a.key
), locked AS MATERIALIZED (
    SELECT s.*, k.mark, k.owner, k.token, k.expires_us, k.standing
    FROM seen AS s JOIN {keys} AS k ON k.key = s.key
    ORDER BY k.key
    FOR UPDATE OF k SKIP LOCKED
), clocked AS MATERIALIZED (
    SELECT l.*, {now} AS at FROM locked AS l
), timed AS MATERIALIZED (
    SELECT c.*, coalesce(c.standing <> 1 AND c.expires_us >= c.at
        AND c.token < greatest(c.mark, c.at_least), false) AS revoked
    FROM clocked AS c
), raised AS (
    UPDATE {keys} AS k SET
        version = k.version + 1,
        mark = greatest(k.mark, t.at_least),
        standing = CASE WHEN t.revoked THEN 2 ELSE k.standing END,
        expires_us = CASE WHEN t.revoked AND t.at_once THEN t.at - 1 ELSE k.expires_us END
    FROM timed AS t
    WHERE k.key = t.key
    RETURNING t.n, t.key, t.owner, t.revoked, k.mark, greatest(t.at, t.expires_us) AS last,
        t.revoked AND t.at_once AND k.awaited_us > t.at AS awaited
), made AS (
    INSERT INTO {keys} AS k (key, mark, version, awaited_us)
    SELECT s.key, s.at_least, 1, 0 FROM seen AS s WHERE NOT s.there ORDER BY s.key
    ON CONFLICT (key) DO NOTHING
    RETURNING k.key, k.mark
), buried AS (
    INSERT INTO {tombstones} AS t (key, owner, reason, until_us)
    SELECT r.key, r.owner, 1, r.last + $4::bigint FROM raised AS r WHERE r.revoked
    ON CONFLICT (key, owner) DO UPDATE
        SET reason = 1, until_us = greatest(t.until_us, excluded.until_us)
)
SELECT r.n, NULL::text AS key, 1 AS code, r.mark, r.awaited FROM raised AS r
UNION ALL
SELECT NULL, m.key, 1, m.mark, false FROM made AS m
