-- Forgets tombstones whose time is over.
DELETE FROM {tombstones} AS t USING (
    SELECT o.key, o.owner, set_config('synchronous_commit', 'off', true) AS quick
    FROM {tombstones} AS o
    -- Once, or no index could be gone by: the clock is volatile.
    WHERE o.until_us > 0 AND o.until_us < (SELECT {now})
    ORDER BY o.until_us
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
) AS old
WHERE t.key = old.key AND t.owner = old.owner
