-- Commits without waiting for the disk: a release that a crash undoes waits out
-- its TTL. So it may also tell those who wait in the same transaction, without
-- keeping other commits waiting for a flush.
WITH asked AS MATERIALIZED (
    SELECT a.*, {now} AS now
    FROM unnest($1::text[], $2::bytea[], $3::bigint[])
        WITH ORDINALITY AS a (key, owner, token, n)
    CROSS JOIN (SELECT set_config('synchronous_commit', 'off', true)) AS quick
), seen AS MATERIALIZED (
    SELECT a.*, coalesce(k.owner = a.owner AND k.token = a.token AND k.standing = 0
        AND k.expires_us >= a.now, false) AS live
    FROM asked AS a LEFT JOIN {keys} AS k ON k.key = a.key
), locked AS MATERIALIZED (
    SELECT s.*
    FROM seen AS s JOIN {keys} AS k ON k.key = s.key
    WHERE s.live
    ORDER BY k.key
    FOR UPDATE OF k SKIP LOCKED
), timed AS MATERIALIZED (
    SELECT l.*, {now} AS at FROM locked AS l
), released AS (
    UPDATE {keys} AS k SET version = k.version + 1, standing = 1
    FROM timed AS t
    WHERE k.key = t.key AND k.owner = t.owner AND k.token = t.token
        AND k.standing = 0 AND k.expires_us >= t.at
    RETURNING t.n, k.key, k.awaited_us > t.at AS awaited
)
SELECT s.n, 0 AS code, NULL::text AS told FROM seen AS s WHERE NOT s.live
UNION ALL
SELECT r.n, 1, CASE WHEN r.awaited THEN pg_notify('{channel}', r.key)::text END
FROM released AS r
