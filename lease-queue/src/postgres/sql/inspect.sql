-- What somebody else wrote may be too much for a subtraction.
SELECT l.name, l.mark, l.token, l.label, l.standing,
    n.now - CASE WHEN l.granted_us < 0 THEN 0 ELSE l.granted_us END AS age,
    CASE WHEN l.expires_us < 0 THEN 0 ELSE l.expires_us END - n.now AS remaining,
    {strange l n.now 3} AS strange
FROM (SELECT {now} AS now OFFSET 0) AS n
LEFT JOIN {queue_lanes} AS l ON l.queue = $1::text AND l.kind = 2 AND l.name = $2::text
