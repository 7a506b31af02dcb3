
-- What becomes of a claim.

-- Ends the claim of a lane whose row the caller holds locked.
CREATE OR REPLACE FUNCTION {queue_free}(
    p_queue text, p_kind smallint, p_name text, p_standing smallint, p_now bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS {quote}
-- leases: body 1
DECLARE
    v_head record;
BEGIN
    IF p_kind = 2 THEN
        -- Its time is over now: those who wait count their turns from here.
        UPDATE {queue_lanes} AS l SET standing = p_standing, expires_us = p_now
            WHERE l.queue = p_queue AND l.kind = 2 AND l.name = p_name;
        PERFORM pg_notify('{channel}_q',
            'k' || octet_length(convert_to(p_queue, 'UTF8')) || ':' || p_queue || p_name);
        RETURN;
    END IF;
    IF p_kind = 0 THEN
        SELECT t.seq, greatest(t.ready_us, p_now) AS next_us INTO v_head
            FROM {queue_items} AS t
            WHERE t.queue = p_queue AND t.grp = p_name AND t.state = 0
            ORDER BY t.seq LIMIT 1;
        -- A snapshot of a whole transaction's may not show the newest put: whoever
        -- claims next looks.
        IF v_head.next_us IS NULL AND current_setting('transaction_isolation') <> 'read committed'
        THEN
            v_head.next_us := p_now;
        END IF;
    ELSE
        SELECT t.seq, greatest(t.ready_us, p_now) AS next_us INTO v_head
            FROM {queue_lanes} AS l
            JOIN {queue_items} AS t ON t.queue = l.queue AND t.id = l.item AND t.state = 0
            WHERE l.queue = p_queue AND l.kind = p_kind AND l.name = p_name;
    END IF;
    UPDATE {queue_lanes} AS l SET standing = p_standing, next_us = v_head.next_us,
        place = coalesce(v_head.seq, l.place)
        WHERE l.queue = p_queue AND l.kind = p_kind AND l.name = p_name;
    IF v_head.next_us IS NOT NULL THEN
        PERFORM pg_notify('{channel}_q', 'q' || p_queue);
    END IF;
END
{quote};

-- Extends (0), completes (1), gives back (2) or buries (3) what is claimed. Codes: 1
-- done, 2 expired, 3 taken over, 4 released, 5 revoked, 6 nothing is known of it, 7 it
-- was settled before, 9 ask again.
CREATE OR REPLACE FUNCTION {queue_settle}(
    p_queue text, p_kinds smallint[], p_names text[], p_items bytea[], p_owners bytea[],
    p_tokens bigint[], p_ops smallint[], p_times bigint[], p_counts boolean[], p_texts text[],
    p_keep bigint
) RETURNS TABLE (o_n integer, o_code integer)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS {quote}
-- leases: body 1
DECLARE
    v_lane record;
    v_now bigint;
    v_exact boolean;
    v_locked boolean;
    v_dedup text;
    v_told boolean[];
BEGIN
    -- What a crash undoes of these waits out its time.
    IF 2 = ALL (p_ops) THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    -- All the items without a group that are completed, in one statement: where a lane is
    -- as this statement's snapshot has it, so is its item. Not where a lane is named twice
    -- for different ends, which come in turn.
    IF cardinality(p_kinds) > 1 AND (1 = ALL (p_ops) OR (
        1 = ANY (p_ops)
        AND cardinality(p_kinds) = (
            SELECT count(DISTINCT (u.kind, u.name)) FROM unnest(p_kinds, p_names) AS u (kind, name)
        )
    )) THEN
        FOR o_n, o_code IN
            WITH lane AS MATERIALIZED (
                SELECT u.n, u.item, u.owner, u.token, l.tid
                FROM unnest(p_kinds, p_names, p_items, p_owners, p_tokens, p_ops)
                    WITH ORDINALITY AS u (kind, name, item, owner, token, op, n)
                CROSS JOIN LATERAL (
                    SELECT l.ctid AS tid FROM {queue_lanes} AS l
                    WHERE l.queue = p_queue AND l.kind = 1 AND l.name = u.name
                        AND l.item = u.item AND l.owner = u.owner AND l.token = u.token
                    FOR UPDATE SKIP LOCKED
                ) AS l
                WHERE u.kind = 1 AND u.op = 1
            ), done AS (
                -- Its identity never comes back: nothing left to keep a mark for. The
                -- clock is read when the row is locked. By no index: so no bare "standing".
                DELETE FROM {queue_lanes} AS l USING lane AS j
                WHERE l.ctid = j.tid AND coalesce(l.standing, 3) = 0 AND l.expires_us > {now}
                RETURNING j.n, l.queue, j.item, j.owner, j.token
            ), gone AS (
                -- By the queue of each, so that no plan begins with all of a queue.
                DELETE FROM {queue_items} AS t USING done AS j
                WHERE t.queue = j.queue AND t.id = j.item
                RETURNING t.queue, t.id, t.dedup
            ), kept AS (
                INSERT INTO {queue_settled} AS s
                    (queue, item, token, owner, completed, until_us)
                SELECT j.queue, j.item, j.token, j.owner, true, {now} + p_keep FROM done AS j
                ON CONFLICT DO NOTHING
            ), freed AS (
                UPDATE {queue_dedup} AS d SET until_us = {now} + p_keep FROM gone AS j
                WHERE d.queue = j.queue AND d.key = j.dedup AND d.item = j.id
            )
            SELECT j.n::integer, 1 FROM done AS j
        LOOP
            v_told[o_n] := true;
            RETURN NEXT;
        END LOOP;
    END IF;
    FOR i IN 1 .. cardinality(p_kinds) LOOP
        CONTINUE WHEN v_told[i];
        o_n := i;
        v_locked := false;
        SELECT l.* INTO v_lane FROM {queue_lanes} AS l
            WHERE l.queue = p_queue AND l.kind = p_kinds[i] AND l.name = p_names[i];
        LOOP
            v_now := {now};
            v_exact := coalesce(v_lane.owner = p_owners[i] AND v_lane.token = p_tokens[i]
                AND (v_lane.kind = 2 OR v_lane.item = p_items[i]), false);
            o_code := CASE
                WHEN NOT v_exact THEN NULL
                WHEN v_lane.standing = 0 AND v_lane.expires_us > v_now THEN 1
                WHEN v_lane.standing = 0 THEN 2
                WHEN v_lane.standing = 2 THEN 5
                ELSE 4
            END;
            -- What has expired may have been ended in time by a copy of this request
            -- that is still being committed: who ends it again must not miss that.
            EXIT WHEN v_locked
                OR NOT coalesce(o_code = 1 OR (o_code = 2 AND p_ops[i] <> 0), false);
            SELECT l.* INTO v_lane FROM {queue_lanes} AS l
                WHERE l.queue = p_queue AND l.kind = p_kinds[i] AND l.name = p_names[i]
                FOR UPDATE SKIP LOCKED;
            IF NOT FOUND THEN
                o_code := 9;
                EXIT;
            END IF;
            v_locked := true;
        END LOOP;
        IF o_code = 1 THEN
            IF p_ops[i] = 0 THEN
                UPDATE {queue_lanes} AS l SET
                    expires_us = greatest(l.expires_us, v_now + p_times[i]),
                    next_us = CASE WHEN l.next_us IS NOT NULL
                        THEN greatest(l.expires_us, v_now + p_times[i]) END
                    WHERE l.queue = p_queue AND l.kind = p_kinds[i] AND l.name = p_names[i];
                RETURN NEXT;
                CONTINUE;
            END IF;
            IF p_ops[i] = 1 THEN
                DELETE FROM {queue_items} AS t WHERE t.queue = p_queue AND t.id = p_items[i]
                    RETURNING t.dedup INTO v_dedup;
                IF v_dedup IS NOT NULL THEN
                    UPDATE {queue_dedup} AS d SET until_us = v_now + p_keep
                        WHERE d.queue = p_queue AND d.key = v_dedup AND d.item = p_items[i];
                END IF;
            ELSIF p_ops[i] = 2 THEN
                UPDATE {queue_items} AS t SET
                    ready_us = v_now + p_times[i],
                    attempts = CASE WHEN p_counts[i] THEN t.attempts
                        ELSE greatest(t.attempts - 1, 0) END,
                    last_error = coalesce(p_texts[i], t.last_error)
                    WHERE p_kinds[i] <> 2 AND t.queue = p_queue AND t.id = p_items[i];
            ELSE
                UPDATE {queue_items} AS t SET
                    state = 1, seq = DEFAULT, reason = p_texts[i], last_error = p_texts[i]
                    WHERE t.queue = p_queue AND t.id = p_items[i];
            END IF;
            IF p_kinds[i] <> 2 THEN
                INSERT INTO {queue_settled} AS s (queue, item, token, owner, completed, until_us)
                    VALUES (p_queue, p_items[i], p_tokens[i], p_owners[i], p_ops[i] = 1,
                        v_now + p_keep)
                    ON CONFLICT DO NOTHING;
            END IF;
            IF p_ops[i] = 1 AND p_kinds[i] = 1 THEN
                -- Its identity never comes back: nothing left to keep a mark for.
                DELETE FROM {queue_lanes} AS l
                    WHERE l.queue = p_queue AND l.kind = 1 AND l.name = p_names[i];
            ELSE
                PERFORM {queue_free}(p_queue, p_kinds[i], p_names[i], 1::smallint, v_now);
            END IF;
        ELSIF o_code IS DISTINCT FROM 9 THEN
            IF (p_kinds[i] = 2 AND v_exact AND v_lane.standing = 1) OR EXISTS (
                SELECT FROM {queue_settled} AS s
                WHERE s.queue = p_queue AND s.item = p_items[i] AND s.token = p_tokens[i]
                    AND s.owner = p_owners[i] AND s.until_us > v_now
            ) THEN
                o_code := CASE WHEN p_ops[i] = 0 THEN 4 ELSE 7 END;
            ELSIF o_code IS NULL THEN
                SELECT CASE t.reason WHEN 1 THEN 5 ELSE 4 END INTO o_code
                    FROM {queue_tombs} AS t
                    WHERE t.queue = p_queue AND t.owner = p_owners[i] AND t.until_us > v_now;
                IF o_code IS NULL THEN
                    o_code := CASE WHEN v_lane.token > p_tokens[i] OR EXISTS (
                        SELECT FROM {queue_settled} AS s
                        WHERE s.queue = p_queue AND s.item = p_items[i]
                            AND s.token > p_tokens[i] AND s.completed AND s.until_us > v_now
                    ) THEN 3 ELSE 6 END;
                END IF;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END
{quote};

-- Completes an item inside the caller's own transaction, if exactly this claim is
-- live: nobody else has it until that ends. Fails by LE002 otherwise.
CREATE OR REPLACE FUNCTION {queue_complete}(
    p_queue text, p_kind smallint, p_name text, p_item bytea, p_owner bytea, p_token bigint,
    p_keep bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS {quote}
-- leases: body 1
DECLARE
    v_code integer;
    v_place oid;
    v_cause text;
BEGIN
    IF p_queue IS NULL OR p_kind IS NULL OR p_name IS NULL OR p_item IS NULL OR p_owner IS NULL
        OR p_token IS NULL OR p_keep IS NULL THEN
        RAISE EXCEPTION 'completing needs all of a claim, and some of it is null'
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    -- Waits for whoever changes it, and fails by 40001 where the snapshot is the whole
    -- transaction's and older than the last change.
    SELECT l.tableoid INTO v_place FROM {queue_lanes} AS l
        WHERE l.queue = p_queue AND l.kind = p_kind AND l.name = p_name FOR UPDATE;
    IF current_setting('transaction_isolation') <> 'read committed'
        AND (SELECT c.relfilenode FROM pg_class AS c WHERE c.oid = v_place)
            IS DISTINCT FROM pg_relation_filenode(v_place) THEN
        RAISE EXCEPTION 'the table of the lanes was rewritten since this transaction''s snapshot'
            USING ERRCODE = 'serialization_failure',
                HINT = 'Roll back, and begin the transaction again.';
    END IF;
    SELECT s.o_code INTO v_code FROM {queue_settle}(
        p_queue, ARRAY[p_kind], ARRAY[p_name], ARRAY[p_item], ARRAY[p_owner], ARRAY[p_token],
        ARRAY[1::smallint], ARRAY[0::bigint], ARRAY[true], ARRAY[NULL::text], p_keep
    ) AS s;
    IF v_code = 1 THEN
        RETURN;
    END IF;
    IF v_code = 6 AND current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'this transaction''s snapshot may be older than the claim'
            USING ERRCODE = 'serialization_failure',
                HINT = 'Roll back, and begin the transaction again.';
    END IF;
    v_cause := CASE v_code WHEN 2 THEN 'expired' WHEN 3 THEN 'taken_over' WHEN 4 THEN 'released'
        WHEN 5 THEN 'revoked' WHEN 7 THEN 'before' ELSE 'unknown' END;
    RAISE EXCEPTION USING
        ERRCODE = 'LE002',
        MESSAGE = format('the claim on item %s (token %s) is not live: %s',
            encode(p_item, 'hex'), p_token, replace(v_cause, '_', ' ')),
        DETAIL = format('cause: %s', v_cause),
        HINT = 'Roll back and stop writing. Where nothing is known of the claim, see whether this '
            'is the database of the queue.';
END
{quote};

-- Whoever is to use them is granted that by name.
REVOKE ALL ON FUNCTION
    {queue_free}(text, smallint, text, smallint, bigint),
    {queue_settle}(text, smallint[], text[], bytea[], bytea[], bigint[], smallint[], bigint[],
        boolean[], text[], bigint),
    {queue_complete}(text, smallint, text, bytea, bytea, bigint, bigint)
    FROM PUBLIC;
