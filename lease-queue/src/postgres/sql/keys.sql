SELECT l.name, l.mark, l.token, l.label, l.standing,
    {now} - l.granted_us AS age, l.expires_us - {now} AS remaining
FROM {queue_lanes} AS l
WHERE l.queue = $1::text AND l.kind = 2 AND l.name >= $2::text
    AND ($3::boolean OR l.name > $2::text) AND l.mark > 0
ORDER BY l.name
LIMIT $4::bigint
