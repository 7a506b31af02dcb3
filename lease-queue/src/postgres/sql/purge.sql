-- Forgets what was remembered for long enough.
WITH quick AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true) AS it, {now} AS now
), settled AS (
    DELETE FROM {queue_settled} AS s USING (
        SELECT o.queue, o.item, o.token FROM {queue_settled} AS o
        WHERE o.until_us > 0 AND o.until_us < (SELECT now FROM quick)
        ORDER BY o.until_us LIMIT 2000 FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE s.queue = old.queue AND s.item = old.item AND s.token = old.token
    RETURNING 1
), tombs AS (
    DELETE FROM {queue_tombs} AS t USING (
        SELECT o.queue, o.owner FROM {queue_tombs} AS o
        WHERE o.until_us > 0 AND o.until_us < (SELECT now FROM quick)
        ORDER BY o.until_us LIMIT 2000 FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE t.queue = old.queue AND t.owner = old.owner
    RETURNING 1
), waiters AS (
    DELETE FROM {queue_waiters} AS w USING (
        SELECT o.queue, o.key, o.owner FROM {queue_waiters} AS o
        WHERE o.until_us < (SELECT now FROM quick)
        LIMIT 2000 FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE w.queue = old.queue AND w.key = old.key AND w.owner = old.owner
    RETURNING 1
), dedup AS (
    DELETE FROM {queue_dedup} AS d USING (
        SELECT o.queue, o.key FROM {queue_dedup} AS o
        WHERE o.until_us > 0 AND o.until_us < (SELECT now FROM quick)
        ORDER BY o.until_us LIMIT 2000 FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE d.queue = old.queue AND d.key = old.key
    RETURNING 1
)
SELECT greatest((SELECT count(*) FROM settled), (SELECT count(*) FROM tombs),
    (SELECT count(*) FROM waiters), (SELECT count(*) FROM dedup)) >= 2000 AS more
