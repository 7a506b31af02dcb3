-- Decides on what one snapshot shows; a key that is held is answered from there,
-- without a lock and without a write. Where there is something to grant, the row
-- is locked, and the grant is made if the row is still of the version that was
-- decided on: only then are the tombstones those of this version. A request
-- without an answer found its row locked or changed; it is to be asked again.
-- What is in the row counts as a grant that may be live unless it is all there, or
-- its time is over: a row that somebody wrote into is granted to nobody before.
WITH asked AS MATERIALIZED (
    SELECT a.*, {now} AS now
    FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[])
        WITH ORDINALITY AS a (key, owner, ttl, label, exactly, after, n)
), seen AS MATERIALIZED (
    SELECT a.*, k.version AS seen_version, k.mark AS seen_mark, k.owner AS last_owner,
        k.token AS last_token, k.label AS last_label, k.standing AS last_standing,
        k.session AS last_session, k.granted_us, k.expires_us,
        coalesce(k.standing <> 1 AND k.expires_us >= a.now, false) AS blocked,
        {strange k a.now 2} AS strange,
        (SELECT t.reason FROM {tombstones} AS t
            WHERE t.key = a.key AND t.owner = a.owner AND t.until_us > a.now) AS buried,
        CASE WHEN a.exactly > 0 THEN a.exactly ELSE greatest(
            coalesce(k.mark, 0) + 1, a.after + 1,
            -- A clock gone wild must not use the key's tokens up.
            least(a.now, 4503599627370496)
        ) END AS next
    FROM asked AS a LEFT JOIN {keys} AS k ON k.key = a.key
), decided AS MATERIALIZED (
    SELECT s.*, CASE
        WHEN buried IS NOT NULL THEN 3 + buried
        WHEN strange THEN 8
        WHEN blocked AND last_owner <> owner THEN 0
        WHEN blocked AND last_standing = 2 THEN 4
        WHEN blocked AND exactly > 0 AND exactly < seen_mark THEN 2
        WHEN blocked THEN 7
        WHEN exactly > 0 AND exactly <= seen_mark THEN 2
        WHEN next > 9007199254740991 THEN 6
        ELSE 1
    END AS code
    FROM seen AS s
), locked AS MATERIALIZED (
    SELECT d.*, k.version
    FROM decided AS d JOIN {keys} AS k ON k.key = d.key
    WHERE d.code IN (1, 7)
    ORDER BY k.key
    FOR UPDATE OF k SKIP LOCKED
), timed AS MATERIALIZED (
    SELECT l.*, {now} AS at FROM locked AS l WHERE l.version = l.seen_version
), updated AS (
    UPDATE {keys} AS k SET
        version = k.version + 1,
        mark = CASE WHEN t.code = 7 THEN greatest(k.mark, t.exactly) ELSE t.next END,
        owner = t.owner,
        token = CASE WHEN t.code = 7 AND t.exactly = 0 THEN k.token ELSE t.next END,
        label = CASE WHEN t.code = 7 THEN k.label ELSE t.label END,
        granted_us = CASE WHEN t.code = 7 THEN k.granted_us ELSE t.at END,
        expires_us = CASE WHEN t.code = 7 THEN greatest(k.expires_us, t.at + t.ttl)
            ELSE t.at + t.ttl END,
        standing = 0,
        -- No late copy of a request puts an earlier session of its client back.
        session = CASE WHEN t.code = 7 AND k.session > $7::bigint
            AND k.session >> 20 = $7::bigint >> 20 THEN k.session ELSE $7::bigint END,
        grace_us = $8::bigint
    FROM timed AS t
    WHERE k.key = t.key AND k.version = t.version
        -- Looked at again now that nobody can change it: the lock may have come
        -- late.
        AND (t.code = 7) = coalesce(k.standing <> 1 AND k.expires_us >= t.at, false)
        AND NOT {strange k t.at 2}
    RETURNING t.n, k.token, t.last_token, t.last_label, t.code = 1 AND t.last_standing <> 1 AS over
), inserted AS (
    INSERT INTO {keys} AS k
        (key, mark, version, awaited_us, owner, token, label, granted_us, expires_us, standing,
            session, grace_us)
    SELECT d.key, d.next, 1, 0, d.owner, d.next, d.label, c.at, c.at + d.ttl, 0,
        $7::bigint, $8::bigint
    FROM decided AS d CROSS JOIN LATERAL (SELECT {now} AS at, d.n OFFSET 0) AS c
    WHERE d.code = 1 AND d.seen_version IS NULL
    ORDER BY d.key
    ON CONFLICT (key) DO NOTHING
    RETURNING k.key, k.token
)
SELECT d.n, NULL::text AS key, d.code, d.last_token AS token, d.last_label AS label,
    d.seen_mark AS mark, d.now, d.granted_us, d.expires_us, NULL::bigint AS over,
    d.last_session AS session
FROM decided AS d WHERE d.code NOT IN (1, 7)
UNION ALL
SELECT u.n, NULL, 1, u.token, CASE WHEN u.over THEN u.last_label END, NULL, NULL, NULL, NULL,
    CASE WHEN u.over THEN u.last_token END, NULL
FROM updated AS u
UNION ALL
SELECT NULL, i.key, 1, i.token, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM inserted AS i
