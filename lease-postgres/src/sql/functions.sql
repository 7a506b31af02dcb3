
-- What follows is for transactions of the user's own, by any program that may
-- run SQL. It runs with the caller's rights and finds nothing by a search path.
-- LE001 is a stale token, LE002 a lost lease.

-- Admits a token at a resource, or fails because a higher one was admitted. Until
-- the caller's transaction ends, no higher one is; the same one is, at any time.
CREATE OR REPLACE FUNCTION {admit}(resource text, token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS {quote}
-- leases: body 1
DECLARE
    admitted bigint;
BEGIN
    IF $1 IS NULL OR $2 IS NULL THEN
        RAISE EXCEPTION 'admitting needs a resource and a token, and one of them is null'
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    LOOP
        SELECT g.token INTO admitted FROM {gate} AS g WHERE g.resource = $1;
        IF admitted = $2 THEN
            -- The holder's other transactions are not in the way; the next
            -- holder's wait, and we have waited for it.
            SELECT g.token INTO admitted FROM {gate} AS g WHERE g.resource = $1 FOR SHARE;
            IF admitted = $2 THEN
                RETURN;
            END IF;
        ELSIF admitted < $2 THEN
            UPDATE {gate} AS g SET token = $2 WHERE g.resource = $1 AND g.token <= $2;
            IF FOUND THEN
                RETURN;
            END IF;
        ELSIF admitted IS NULL THEN
            INSERT INTO {gate} AS g (resource, token) VALUES ($1, $2) ON CONFLICT DO NOTHING;
            IF FOUND THEN
                RETURN;
            END IF;
            IF EXISTS (SELECT FROM {gate} AS g WHERE g.resource = $1 AND g.token IS NULL) THEN
                RAISE EXCEPTION USING
                    ERRCODE = 'null_value_not_allowed',
                    MESSAGE = format('the row of %L among the admitted tokens holds none', $1),
                    HINT = 'Somebody has altered the table: put the row right, or delete it.';
            END IF;
        ELSE
            RAISE EXCEPTION USING
                ERRCODE = 'LE001',
                MESSAGE = format('token %s is stale for %L: %s was admitted already', $2, $1, admitted),
                DETAIL = format('admitted: %s', admitted),
                HINT = 'Another holder has written since: roll back and stop writing.';
        END IF;
    END LOOP;
END
{quote};

-- Proves that exactly this grant is live, and keeps it from being taken over,
-- fenced, released or revoked until the caller's transaction ends. Its renewals
-- go on. What ends a grant locks its row FOR UPDATE, and a renewal FOR NO KEY
-- UPDATE: so the lock shows the newest grant, but not always its last renewal.
CREATE OR REPLACE FUNCTION {hold}(key text, owner bytea, token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS {quote}
-- leases: body 1
DECLARE
    seen record;
    newest bigint;
    cause text;
BEGIN
    IF $1 IS NULL OR $2 IS NULL OR $3 IS NULL THEN
        RAISE EXCEPTION 'holding needs a key, an owner and a token, and one of them is null'
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    LOOP
        SELECT k.owner, k.token, k.standing, k.expires_us, k.tableoid AS place INTO seen
            FROM {keys} AS k WHERE k.key = $1 FOR KEY SHARE;
        IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            IF seen.place IS NULL THEN
                -- Fails by 40001 where this snapshot is too old to show the row; what
                -- it makes otherwise is undone by the failure below.
                INSERT INTO {keys} AS k (key, mark, version, awaited_us) VALUES ($1, 0, 1, 0)
                    ON CONFLICT DO NOTHING;
            ELSIF (SELECT c.relfilenode FROM pg_class AS c WHERE c.oid = seen.place)
                IS DISTINCT FROM pg_relation_filenode(seen.place) THEN
                -- The table was written anew since this snapshot, by VACUUM FULL,
                -- say: old versions have lost the mark of what ended their grant.
                RAISE EXCEPTION 'the table of the keys was rewritten since this transaction''s snapshot'
                    USING ERRCODE = 'serialization_failure',
                        HINT = 'Roll back, and begin the transaction again.';
            END IF;
        END IF;
        IF seen.owner = $2 AND seen.token = $3 THEN
            -- The clock, now that nobody can take over.
            IF seen.standing = 0 AND seen.expires_us >= {now} THEN
                RETURN;
            END IF;
            cause := CASE seen.standing
                WHEN 0 THEN 'expired' WHEN 1 THEN 'released' ELSE 'revoked' END;
        ELSE
            cause := coalesce(
                (SELECT CASE t.reason WHEN 0 THEN 'released' ELSE 'revoked' END
                    FROM {tombstones} AS t
                    WHERE t.key = $1 AND t.owner = $2 AND t.until_us > {now}),
                CASE WHEN seen.token > $3 THEN 'taken_over' ELSE 'unknown' END
            );
        END IF;
        EXIT WHEN cause <> 'expired';
        -- Unless it was renewed since this snapshot. If so, this waits for the
        -- renewal, or fails by 40001 where the snapshot is the whole
        -- transaction's. The lock would keep the next renewals out: it goes again.
        BEGIN
            SELECT k.expires_us INTO newest
                FROM {keys} AS k WHERE k.key = $1 FOR NO KEY UPDATE;
            RAISE SQLSTATE 'LE000';
        EXCEPTION WHEN SQLSTATE 'LE000' THEN
            NULL;
        END;
        EXIT WHEN newest IS NOT DISTINCT FROM seen.expires_us;
    END LOOP;
    RAISE EXCEPTION USING
        ERRCODE = 'LE002',
        MESSAGE = format('the lease on %L (token %s) is lost: %s', $1, $3, replace(cause, '_', ' ')),
        DETAIL = format('cause: %s', cause),
        HINT = 'Roll back and stop writing. Where nothing is known of the grant, see whether this '
            'is the database of the lease.';
END
{quote};

-- Whoever is to use them is granted that by name.
REVOKE ALL ON FUNCTION {admit}(text, bigint), {hold}(text, bytea, bigint) FROM PUBLIC;
