-- Times as they are: what somebody else wrote may be too much for a subtraction.
SELECT k.key, k.mark, k.token, k.label, k.standing, c.now, k.granted_us, k.expires_us,
    {strange k c.now 2} AS strange
FROM {keys} AS k CROSS JOIN (SELECT {now} AS now OFFSET 0) AS c
WHERE k.key >= $1::text AND ($2::boolean OR k.key > $1::text)
    AND (coalesce(k.mark > 0, true) OR k.token IS NOT NULL)
ORDER BY k.key
LIMIT $3::bigint
