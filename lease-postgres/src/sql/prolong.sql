-- Renews many grants in one pass, where that is all there is to do: a grant that is
-- not live has no answer, and is asked for again by what tells why. It hardly waits
-- for a row that somebody holds locked; all of them are asked for again then.
UPDATE {keys} AS k SET expires_us = greatest(k.expires_us, {now} + a.ttl),
    session = CASE WHEN k.session > $5::bigint AND k.session >> 20 = $5::bigint >> 20
            THEN k.session ELSE $5::bigint END,
    grace_us = $6::bigint
FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[])
    WITH ORDINALITY AS a (key, owner, token, ttl, n)
CROSS JOIN (SELECT set_config('lock_timeout', '2', true)) AS impatient
WHERE k.key = a.key AND k.owner = a.owner AND k.token = a.token
    AND k.standing = 0 AND k.expires_us >= {now}
RETURNING a.n, 1 AS code
