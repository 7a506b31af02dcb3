SELECT l.name, l.mark, l.token, l.label, l.standing,
    n.now - l.granted_us AS age, l.expires_us - n.now AS remaining
FROM (SELECT {now} AS now OFFSET 0) AS n
LEFT JOIN {queue_lanes} AS l ON l.queue = $1::text AND l.kind = 2 AND l.name = $2::text
