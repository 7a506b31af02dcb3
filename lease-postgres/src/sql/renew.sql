-- Locks, then looks at the clock, then prolongs: a row may be locked for long.
-- The lock leaves room for those who only keep the grant from being taken over.
WITH asked AS MATERIALIZED (
    SELECT a.*, {now} AS now
    FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[])
        WITH ORDINALITY AS a (key, owner, token, ttl, n)
), seen AS MATERIALIZED (
    SELECT a.*, k.token AS last_token, coalesce(k.standing, -1) AS standing,
        coalesce(k.owner = a.owner AND k.token = a.token, false) AS exact,
        coalesce(k.expires_us >= a.now, false) AS in_time
    FROM asked AS a LEFT JOIN {keys} AS k ON k.key = a.key
), locked AS MATERIALIZED (
    SELECT s.*
    FROM seen AS s JOIN {keys} AS k ON k.key = s.key
    WHERE s.exact AND s.standing = 0 AND s.in_time
    ORDER BY k.key
    FOR NO KEY UPDATE OF k SKIP LOCKED
), timed AS MATERIALIZED (
    SELECT l.*, {now} AS at FROM locked AS l
), renewed AS (
    UPDATE {keys} AS k SET expires_us = greatest(k.expires_us, t.at + t.ttl),
        -- No late copy of a request puts an earlier session of its client back.
        session = CASE WHEN k.session > $5::bigint AND k.session >> 20 = $5::bigint >> 20
            THEN k.session ELSE $5::bigint END,
        grace_us = $6::bigint
    FROM timed AS t
    WHERE k.key = t.key AND k.owner = t.owner AND k.token = t.token
        AND k.standing = 0 AND k.expires_us >= t.at
    RETURNING t.n
)
SELECT s.n, CASE
    WHEN s.exact THEN CASE s.standing WHEN 0 THEN 2 WHEN 1 THEN 4 WHEN 2 THEN 5 ELSE 8 END
    ELSE coalesce(
        (SELECT 4 + t.reason FROM {tombstones} AS t
            WHERE t.key = s.key AND t.owner = s.owner AND t.until_us > s.now),
        CASE WHEN s.last_token > s.token THEN 3 ELSE 6 END
    )
END AS code
FROM seen AS s WHERE NOT (s.exact AND s.standing = 0 AND s.in_time)
UNION ALL
SELECT r.n, 1 FROM renewed AS r
