-- Looks whether the sessions that grants belong to are gone, and lets the grants
-- of those that are end soon: not at once, since their holder may only have lost a
-- connection, and goes on by a renewal that carries its next session. Where there
-- is nothing to do, nothing is written. A session's lock is never taken again once
-- it is gone, so that the look and the change need not be one step; but only a
-- grant that still belongs to this session is changed.
WITH asked AS MATERIALIZED (
    SELECT a.*
    FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS a (key, session, n)
), looked AS MATERIALIZED (
    SELECT a.*, pg_try_advisory_xact_lock_shared(a.session) AS gone FROM asked AS a
), locked AS MATERIALIZED (
    SELECT l.n, l.key, l.session
    FROM looked AS l JOIN {keys} AS k ON k.key = l.key
    WHERE l.gone AND k.session = l.session AND k.standing <> 1
    ORDER BY k.key
    FOR NO KEY UPDATE OF k SKIP LOCKED
), timed AS MATERIALIZED (
    SELECT l.*, {now} AS at FROM locked AS l
), shortened AS (
    UPDATE {keys} AS k SET expires_us = least(k.expires_us, t.at + k.grace_us)
    FROM timed AS t
    WHERE k.key = t.key AND k.session = t.session AND k.expires_us > t.at + k.grace_us
    RETURNING t.n, k.expires_us - t.at AS remaining
)
SELECT l.n, CASE WHEN l.gone THEN 1 ELSE 0 END AS code, s.remaining
FROM looked AS l LEFT JOIN shortened AS s ON s.n = l.n
