-- What somebody else wrote may be too much for a subtraction.
SELECT t.seq, t.id, t.grp, t.dedup, t.attempts, n.now - greatest(t.put_us, 0) AS age,
    octet_length(t.body) AS bytes, t.state, t.reason, t.last_error,
    greatest(t.ready_us, 0) - n.now AS delay, l.token, l.label,
    n.now - CASE WHEN l.granted_us < 0 THEN 0 ELSE l.granted_us END AS held,
    CASE WHEN l.expires_us < 0 THEN 0 ELSE l.expires_us END - n.now AS remaining,
    coalesce(l.standing = 0 AND l.item = t.id AND l.expires_us > n.now, false) AS claimed
FROM (SELECT {now} AS now OFFSET 0) AS n
CROSS JOIN {queue_items} AS t
LEFT JOIN {queue_lanes} AS l ON l.queue = t.queue
    AND l.kind = CASE WHEN t.grp IS NULL THEN 1::smallint ELSE 0::smallint END
    AND l.name = coalesce(t.grp, encode(t.id, 'hex'))
WHERE t.queue = $1::text AND t.state = $2::smallint AND t.seq > $3::bigint
    AND t.seq > 0
ORDER BY t.seq
LIMIT $4::bigint
