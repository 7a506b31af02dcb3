SELECT t.seq, t.id, t.grp, t.dedup, t.attempts, n.now - t.put_us AS age,
    octet_length(t.body) AS bytes, t.state, t.reason, t.last_error,
    t.ready_us - n.now AS delay, l.token, l.label, n.now - l.granted_us AS held,
    l.expires_us - n.now AS remaining,
    coalesce(l.standing = 0 AND l.item = t.id AND l.expires_us > n.now, false) AS claimed
FROM (SELECT {now} AS now OFFSET 0) AS n
CROSS JOIN {queue_items} AS t
LEFT JOIN {queue_lanes} AS l ON l.queue = t.queue
    AND l.kind = CASE WHEN t.grp IS NULL THEN 1::smallint ELSE 0::smallint END
    AND l.name = coalesce(t.grp, encode(t.id, 'hex'))
WHERE t.queue = $1::text AND t.state = $2::smallint AND t.seq > $3::bigint
ORDER BY t.seq
LIMIT $4::bigint
