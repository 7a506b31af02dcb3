SELECT k.key, k.mark, k.token, k.label, k.standing,
    {now} - k.granted_us AS age, k.expires_us - {now} AS remaining
FROM {keys} AS k
WHERE k.key >= $1::text AND ($2::boolean OR k.key > $1::text) AND k.mark > 0
ORDER BY k.key
LIMIT $3::bigint
