-- What somebody else wrote may be too much for a subtraction.
WITH clock AS MATERIALIZED (
    SELECT {now} AS now
), counted AS (
    SELECT count(*) FILTER (WHERE t.state = 0) AS living,
        count(*) FILTER (WHERE t.state = 0 AND t.ready_us > c.now) AS delayed,
        count(*) FILTER (WHERE t.state = 1) AS dead,
        max(c.now - greatest(t.put_us, 0)) FILTER (WHERE t.state = 0) AS oldest
    FROM clock AS c CROSS JOIN {queue_items} AS t WHERE t.queue = $1::text
), claimed AS (
    SELECT count(*) AS claimed
    FROM clock AS c CROSS JOIN {queue_lanes} AS l
    WHERE l.queue = $1::text AND l.next_us IS NOT NULL AND l.standing = 0
        AND l.expires_us > c.now
)
SELECT living, delayed, dead, oldest, claimed FROM counted CROSS JOIN claimed
