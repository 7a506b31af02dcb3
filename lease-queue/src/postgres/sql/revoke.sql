
-- What ends claims from outside, and puts what is dead back.

-- Frees what an owner claimed, and remembers the owner. True if some of it is locked:
-- ask again.
CREATE OR REPLACE FUNCTION {queue_abandon}(
    p_queue text, p_key text, p_owner bytea, p_lock bigint, p_keep bigint
) RETURNS TABLE (o_busy boolean)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS {quote}
-- leases: body 1
DECLARE
    v_own record;
    v_lane record;
    v_now bigint;
    v_left boolean := false;
BEGIN
    -- Whatever this owner asked for is committed, or will find the tombstone.
    PERFORM pg_advisory_xact_lock(p_lock);
    v_now := {now};
    INSERT INTO {queue_tombs} AS t (queue, owner, reason, until_us)
        VALUES (p_queue, p_owner, 0, v_now + p_keep)
        ON CONFLICT (queue, owner) DO UPDATE
            SET reason = 0, until_us = greatest(t.until_us, excluded.until_us);
    o_busy := false;
    IF p_key IS NOT NULL THEN
        DELETE FROM {queue_waiters} AS w
            WHERE w.queue = p_queue AND w.key = p_key AND w.owner = p_owner;
        v_left := FOUND;
    END IF;
    -- Whoever gives up makes room for those behind it.
    IF v_left AND EXISTS (
        SELECT FROM {queue_lanes} AS l
        WHERE l.queue = p_queue AND l.kind = 2 AND l.name = p_key
            AND (l.standing NOT IN (0, 2) OR l.expires_us <= v_now)
    ) THEN
        PERFORM pg_notify('{channel}_q',
            'k' || octet_length(convert_to(p_queue, 'UTF8')) || ':' || p_queue || p_key);
    END IF;
    FOR v_own IN
        SELECT l.kind, l.name FROM {queue_lanes} AS l
        WHERE l.owner = p_owner AND l.standing IN (0, 2) AND l.queue = p_queue
            AND (p_key IS NULL OR (l.kind = 2 AND l.name = p_key))
    LOOP
        SELECT l.* INTO v_lane FROM {queue_lanes} AS l
            WHERE l.queue = p_queue AND l.kind = v_own.kind AND l.name = v_own.name
            FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            o_busy := true;
            CONTINUE;
        END IF;
        v_now := {now};
        CONTINUE WHEN v_lane.owner <> p_owner OR v_lane.standing NOT IN (0, 2)
            OR v_lane.expires_us <= v_now;
        UPDATE {queue_items} AS t SET attempts = greatest(t.attempts - 1, 0)
            WHERE v_lane.kind <> 2 AND t.queue = p_queue AND t.id = v_lane.item;
        PERFORM {queue_free}(p_queue, v_lane.kind, v_lane.name, 3::smallint, v_now);
    END LOOP;
    RETURN NEXT;
END
{quote};

-- Raises the mark of a lane, and revokes a live claim below it. Null: ask again.
CREATE OR REPLACE FUNCTION {queue_fence}(
    p_queue text, p_kind smallint, p_name text, p_at_least bigint, p_at_once boolean,
    p_keep bigint
) RETURNS TABLE (o_mark bigint)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS {quote}
-- leases: body 1
DECLARE
    v_lane record;
    v_now bigint;
    v_ends bigint;
BEGIN
    SELECT l.* INTO v_lane FROM {queue_lanes} AS l
        WHERE l.queue = p_queue AND l.kind = p_kind AND l.name = p_name FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        INSERT INTO {queue_lanes} AS l (queue, kind, name, mark)
            VALUES (p_queue, p_kind, p_name, p_at_least)
            ON CONFLICT DO NOTHING RETURNING l.mark INTO o_mark;
        RETURN NEXT;
        RETURN;
    END IF;
    v_now := {now};
    o_mark := greatest(v_lane.mark, p_at_least);
    IF v_lane.standing IN (0, 2) AND v_lane.expires_us > v_now AND v_lane.token < o_mark THEN
        v_ends := CASE WHEN p_at_once THEN v_now ELSE v_lane.expires_us END;
        UPDATE {queue_lanes} AS l SET mark = o_mark, standing = 2, expires_us = v_ends,
            next_us = CASE WHEN l.next_us IS NOT NULL THEN v_ends END
            WHERE l.queue = p_queue AND l.kind = p_kind AND l.name = p_name;
        INSERT INTO {queue_tombs} AS t (queue, owner, reason, until_us)
            VALUES (p_queue, v_lane.owner, 1, v_lane.expires_us + p_keep)
            ON CONFLICT (queue, owner) DO UPDATE
                SET reason = 1, until_us = greatest(t.until_us, excluded.until_us);
        IF p_at_once THEN
            PERFORM pg_notify('{channel}_q', CASE p_kind WHEN 2
                THEN 'k' || octet_length(convert_to(p_queue, 'UTF8')) || ':' || p_queue || p_name
                ELSE 'q' || p_queue END);
        END IF;
    ELSE
        UPDATE {queue_lanes} AS l SET mark = o_mark
            WHERE l.queue = p_queue AND l.kind = p_kind AND l.name = p_name AND l.mark < o_mark;
    END IF;
    RETURN NEXT;
END
{quote};

-- Puts a dead item back. Codes: 1 done, 0 it is not dead, 9 ask again.
CREATE OR REPLACE FUNCTION {queue_requeue}(p_queue text, p_id bytea)
RETURNS TABLE (o_code integer)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS {quote}
-- leases: body 1
DECLARE
    v_item record;
    v_kind smallint;
    v_name text;
    v_now bigint;
    v_place bigint;
    v_made boolean;
BEGIN
    SELECT t.grp, t.state INTO v_item FROM {queue_items} AS t
        WHERE t.queue = p_queue AND t.id = p_id;
    IF NOT FOUND OR v_item.state <> 1 THEN
        o_code := 0;
        RETURN NEXT;
        RETURN;
    END IF;
    v_kind := CASE WHEN v_item.grp IS NULL THEN 1 ELSE 0 END;
    v_name := coalesce(v_item.grp, encode(p_id, 'hex'));
    INSERT INTO {queue_lanes} AS l (queue, kind, name, item)
        VALUES (p_queue, v_kind, v_name, CASE v_kind WHEN 1 THEN p_id END)
        ON CONFLICT DO NOTHING;
    v_made := FOUND;
    PERFORM FROM {queue_lanes} AS l
        WHERE l.queue = p_queue AND l.kind = v_kind AND l.name = v_name FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        o_code := 9;
        RETURN NEXT;
        RETURN;
    END IF;
    v_now := {now};
    UPDATE {queue_items} AS t SET state = 0, seq = DEFAULT, attempts = 0, reason = NULL,
        ready_us = v_now
        WHERE t.queue = p_queue AND t.id = p_id AND t.state = 1 RETURNING t.seq INTO v_place;
    IF NOT FOUND THEN
        -- Somebody else put it back, and it was completed.
        DELETE FROM {queue_lanes} AS l
            WHERE v_made AND l.queue = p_queue AND l.kind = v_kind AND l.name = v_name;
        o_code := 0;
        RETURN NEXT;
        RETURN;
    END IF;
    UPDATE {queue_lanes} AS l SET
        next_us = CASE WHEN l.standing IN (0, 2)
            THEN greatest(v_now, l.expires_us) ELSE v_now END,
        place = v_place
        WHERE l.queue = p_queue AND l.kind = v_kind AND l.name = v_name AND l.next_us IS NULL;
    PERFORM pg_notify('{channel}_q', 'q' || p_queue);
    o_code := 1;
    RETURN NEXT;
END
{quote};

-- Whoever is to use them is granted that by name.
REVOKE ALL ON FUNCTION
    {queue_abandon}(text, text, bytea, bigint, bigint),
    {queue_fence}(text, smallint, text, bigint, boolean, bigint),
    {queue_requeue}(text, bytea)
    FROM PUBLIC;
