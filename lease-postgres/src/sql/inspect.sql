SELECT a.n, 1 AS code, k.mark, k.token, k.label, k.standing,
    a.now - k.granted_us AS age, k.expires_us - a.now AS remaining
FROM (
    SELECT u.*, {now} AS now FROM unnest($1::text[]) WITH ORDINALITY AS u (key, n)
    OFFSET 0
) AS a
LEFT JOIN {keys} AS k ON k.key = a.key
