-- Says that somebody waits for these keys, for a while. Losing it costs a hint.
WITH asked AS MATERIALIZED (
    SELECT a.*, {now} AS now
    FROM unnest($1::text[]) WITH ORDINALITY AS a (key, n)
    CROSS JOIN (SELECT set_config('synchronous_commit', 'off', true)) AS quick
), seen AS MATERIALIZED (
    SELECT a.*, k.awaited_us, coalesce(k.awaited_us >= a.now + $2::bigint * 2 / 3, false) AS known
    FROM asked AS a LEFT JOIN {keys} AS k ON k.key = a.key
), locked AS MATERIALIZED (
    SELECT s.*
    FROM seen AS s JOIN {keys} AS k ON k.key = s.key
    WHERE NOT s.known
    ORDER BY k.key
    FOR NO KEY UPDATE OF k SKIP LOCKED
), marked AS (
    UPDATE {keys} AS k SET awaited_us = greatest(k.awaited_us, l.now + $2::bigint)
    FROM locked AS l
    WHERE k.key = l.key
    RETURNING l.n
), made AS (
    INSERT INTO {keys} AS k (key, mark, version, awaited_us)
    SELECT s.key, 0, 1, s.now + $2::bigint FROM seen AS s WHERE s.awaited_us IS NULL ORDER BY s.key
    ON CONFLICT (key) DO NOTHING
    RETURNING k.key
)
SELECT s.n, NULL::text AS key, 1 AS code FROM seen AS s WHERE s.known
UNION ALL
SELECT r.n, NULL, 1 FROM marked AS r
UNION ALL
SELECT NULL, m.key, 1 FROM made AS m
