-- Times as they are: what somebody else wrote may be too much for a subtraction.
SELECT a.n, 1 AS code, k.mark, k.token, k.label, k.standing, a.now, k.granted_us, k.expires_us,
    {strange k a.now 2} AS strange
FROM (
    SELECT u.*, {now} AS now FROM unnest($1::text[]) WITH ORDINALITY AS u (key, n)
    OFFSET 0
) AS a
LEFT JOIN {keys} AS k ON k.key = a.key
