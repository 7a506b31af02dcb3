-- A token that was admitted already is admitted without a write. It hardly waits
-- for a transaction that has made the resource's row and is still open: it is asked
-- for again.
WITH asked AS MATERIALIZED (
    SELECT a.* FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS a (key, token, n)
    CROSS JOIN (SELECT set_config('lock_timeout', '2', true)) AS impatient
), seen AS MATERIALIZED (
    SELECT a.*, g.token AS admitted, g.resource IS NOT NULL AS known
    FROM asked AS a LEFT JOIN {gate} AS g ON g.resource = a.key
), locked AS MATERIALIZED (
    SELECT s.*
    FROM seen AS s JOIN {gate} AS g ON g.resource = s.key
    WHERE s.admitted < s.token
    ORDER BY g.resource
    FOR NO KEY UPDATE OF g SKIP LOCKED
), raised AS (
    UPDATE {gate} AS g SET token = l.token
    FROM locked AS l
    WHERE g.resource = l.key AND g.token <= l.token
    RETURNING l.n
), made AS (
    INSERT INTO {gate} AS g (resource, token)
    SELECT s.key, s.token FROM seen AS s WHERE NOT s.known ORDER BY s.key
    ON CONFLICT (resource) DO NOTHING
    RETURNING g.resource
)
SELECT s.n, NULL::text AS key, CASE WHEN s.admitted > s.token THEN 0 ELSE 1 END AS code,
    s.admitted AS token
FROM seen AS s WHERE s.admitted >= s.token
UNION ALL
-- Of a table that somebody altered: refused when it is read.
SELECT s.n, NULL, 0, NULL FROM seen AS s WHERE s.known AND s.admitted IS NULL
UNION ALL
SELECT r.n, NULL, 1, NULL FROM raised AS r
UNION ALL
SELECT NULL, m.resource, 1, NULL FROM made AS m
