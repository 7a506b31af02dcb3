
-- Each operation is one function, so that it is one round trip. They run with the
-- caller's rights and find nothing by a search path. No one but a put, and what runs
-- in a user's own transaction, waits for a row that somebody holds locked: code 9 says
-- that it is to be asked again.

-- Puts items, all or none. Answers with those whose deduplication key another has.
CREATE OR REPLACE FUNCTION {queue_put}(
    p_queue text, p_ids bytea[], p_bodies bytea[], p_groups text[], p_dedups text[],
    p_delays bigint[]
) RETURNS TABLE (o_n integer, o_other bytea)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS {quote}
-- leases: body 1
DECLARE
    v_group text;
    v_now bigint;
    v_ready bigint;
    v_place bigint;
    v_id bytea;
    v_new boolean := false;
BEGIN
    -- Whoever puts into a group holds its row: the order of the numbers is that of
    -- the commits then, and nobody finds the group empty meanwhile.
    FOR v_group IN
        SELECT DISTINCT u.g COLLATE "C" FROM unnest(p_groups) AS u (g) WHERE u.g IS NOT NULL
        ORDER BY 1
    LOOP
        LOOP
            PERFORM FROM {queue_lanes} AS l
                WHERE l.queue = p_queue AND l.kind = 0 AND l.name = v_group FOR UPDATE;
            EXIT WHEN FOUND;
            INSERT INTO {queue_lanes} (queue, kind, name) VALUES (p_queue, 0, v_group)
                ON CONFLICT DO NOTHING;
            EXIT WHEN FOUND;
        END LOOP;
    END LOOP;
    v_now := {now};
    FOR i IN 1 .. cardinality(p_ids) LOOP
        v_id := p_ids[i];
        CONTINUE WHEN EXISTS (
            SELECT FROM {queue_items} AS t WHERE t.queue = p_queue AND t.id = v_id
        ) OR EXISTS (
            SELECT FROM {queue_settled} AS s WHERE s.queue = p_queue AND s.item = v_id
                AND s.completed AND s.until_us > v_now
        );
        IF p_dedups[i] IS NOT NULL THEN
            INSERT INTO {queue_dedup} AS d (queue, key, item, until_us)
                VALUES (p_queue, p_dedups[i], v_id, 9223372036854775807)
                ON CONFLICT (queue, key) DO UPDATE
                    SET item = excluded.item, until_us = excluded.until_us
                    WHERE d.until_us <= v_now;
            IF NOT FOUND THEN
                SELECT d.item INTO o_other FROM {queue_dedup} AS d
                    WHERE d.queue = p_queue AND d.key = p_dedups[i];
                -- Unless it was put by a copy of this very request meanwhile.
                IF o_other <> v_id THEN
                    o_n := i;
                    RETURN NEXT;
                END IF;
                CONTINUE;
            END IF;
        END IF;
        v_ready := v_now + p_delays[i];
        INSERT INTO {queue_items} AS t (queue, id, grp, dedup, body, put_us, ready_us)
            VALUES (p_queue, v_id, p_groups[i], p_dedups[i], p_bodies[i], v_now, v_ready)
            ON CONFLICT DO NOTHING RETURNING t.seq INTO v_place;
        CONTINUE WHEN NOT FOUND;
        v_new := true;
        IF p_groups[i] IS NULL THEN
            INSERT INTO {queue_lanes} AS l (queue, kind, name, item, next_us, place)
                VALUES (p_queue, 1, encode(v_id, 'hex'), v_id, v_ready, v_place)
                -- Fenced before it was put.
                ON CONFLICT (queue, kind, name) DO UPDATE
                    SET item = v_id, next_us = v_ready, place = v_place;
        ELSE
            UPDATE {queue_lanes} AS l SET
                next_us = CASE WHEN l.standing IN (0, 2)
                    THEN greatest(v_ready, l.expires_us) ELSE v_ready END,
                place = v_place
            WHERE l.queue = p_queue AND l.kind = 0 AND l.name = p_groups[i]
                AND l.next_us IS NULL;
        END IF;
    END LOOP;
    IF v_new THEN
        PERFORM pg_notify('{channel}_q', 'q' || p_queue);
    END IF;
END
{quote};

-- Claims the first items of up to so many lanes that nobody owns.
CREATE OR REPLACE FUNCTION {queue_claim}(
    p_queue text, p_owner bytea, p_lock bigint, p_ttl bigint, p_label text, p_max integer
) RETURNS TABLE (
    o_code integer, o_kind smallint, o_name text, o_item bytea, o_token bigint, o_body bytea,
    o_attempt integer, o_age bigint, o_next bigint
)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
SET enable_sort = off SET enable_bitmapscan = off
AS {quote}
-- leases: body 1
DECLARE
    v_lane record;
    v_head record;
    v_now bigint;
    v_claimed boolean := false;
    v_exhausted boolean := false;
    v_strange boolean := false;
    v_found boolean;
BEGIN
    -- Who abandons this owner comes before or after all of this.
    PERFORM pg_advisory_xact_lock(p_lock);
    v_now := {now};
    SELECT 3 + t.reason INTO o_code FROM {queue_tombs} AS t
        WHERE t.queue = p_queue AND t.owner = p_owner AND t.until_us > v_now;
    IF FOUND THEN
        RETURN NEXT;
        RETURN;
    END IF;
    LOOP
        v_found := false;
        FOR v_lane IN
            SELECT l.* FROM {queue_lanes} AS l
            WHERE l.queue = p_queue AND l.next_us <= v_now
            ORDER BY l.next_us, l.place LIMIT p_max
            FOR UPDATE SKIP LOCKED
        LOOP
            v_found := true;
            v_now := {now};
            -- What somebody else wrote: granted to nobody while it may be a live claim,
            -- and in no other's way.
            IF v_lane.kind NOT IN (0, 1) OR v_lane.mark NOT BETWEEN 0 AND 9007199254740991
                OR {strange v_lane v_now 3} THEN
                UPDATE {queue_lanes} AS l SET next_us = v_now + 10000000
                    WHERE l.queue = p_queue AND l.kind = v_lane.kind AND l.name = v_lane.name;
                v_strange := true;
                CONTINUE;
            END IF;
            IF v_lane.kind = 0 THEN
                SELECT t.id, t.seq, t.ready_us INTO v_head FROM {queue_items} AS t
                    WHERE t.queue = p_queue AND t.grp = v_lane.name AND t.state = 0
                    ORDER BY t.seq LIMIT 1;
            ELSE
                SELECT t.id, t.seq, t.ready_us INTO v_head FROM {queue_items} AS t
                    WHERE t.queue = p_queue AND t.id = v_lane.item AND t.state = 0;
            END IF;
            IF v_lane.standing IN (0, 2) AND v_lane.expires_us > v_now THEN
                -- The clock stepped back.
                v_head.ready_us := greatest(v_head.ready_us, v_lane.expires_us);
            END IF;
            IF v_head.id IS NULL OR v_head.ready_us > v_now THEN
                -- It was a guess, and is put right.
                UPDATE {queue_lanes} AS l SET next_us = v_head.ready_us, place = v_head.seq
                    WHERE l.queue = p_queue AND l.kind = v_lane.kind AND l.name = v_lane.name;
                CONTINUE;
            END IF;
            -- A clock gone wild must not use the lane's tokens up.
            o_token := greatest(v_lane.mark + 1, least(v_now, 4503599627370496));
            IF o_token > 9007199254740991 THEN
                v_exhausted := true;
                CONTINUE;
            END IF;
            UPDATE {queue_items} AS t SET attempts = least(t.attempts, 2147483646) + 1
                WHERE t.queue = p_queue AND t.id = v_head.id
                RETURNING t.attempts, t.body, v_now - t.put_us INTO o_attempt, o_body, o_age;
            UPDATE {queue_lanes} AS l SET
                mark = o_token, item = v_head.id, owner = p_owner, token = o_token,
                label = p_label, granted_us = v_now, expires_us = v_now + p_ttl, standing = 0,
                next_us = v_now + p_ttl, place = v_head.seq
                WHERE l.queue = p_queue AND l.kind = v_lane.kind AND l.name = v_lane.name;
            o_code := 1;
            o_kind := v_lane.kind;
            o_name := v_lane.name;
            o_item := v_head.id;
            v_claimed := true;
            RETURN NEXT;
        END LOOP;
        EXIT WHEN v_claimed OR v_exhausted OR NOT v_found;
    END LOOP;
    IF v_claimed THEN
        RETURN;
    END IF;
    SELECT l.next_us - v_now INTO o_next FROM {queue_lanes} AS l
        WHERE l.queue = p_queue AND l.next_us > v_now ORDER BY l.next_us LIMIT 1;
    o_code := CASE
        WHEN v_exhausted THEN 6
        WHEN v_strange THEN 8
        -- Somebody holds it locked, or it has just come.
        WHEN EXISTS (
            SELECT FROM {queue_lanes} AS l WHERE l.queue = p_queue AND l.next_us <= v_now
        ) THEN 9
        ELSE 0
    END;
    RETURN NEXT;
END
{quote};

-- Claims a key.
CREATE OR REPLACE FUNCTION {queue_key}(
    p_queue text, p_key text, p_owner bytea, p_lock bigint, p_ttl bigint, p_label text,
    p_exactly bigint, p_after bigint
) RETURNS TABLE (
    o_code integer, o_token bigint, o_label text, o_mark bigint, o_age bigint,
    o_remaining bigint, o_over bigint
)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS {quote}
-- leases: body 1
DECLARE
    v_lane record;
    v_now bigint;
    v_blocked boolean;
    v_locked boolean := false;
BEGIN
    PERFORM pg_advisory_xact_lock(p_lock);
    SELECT 3 + t.reason INTO o_code FROM {queue_tombs} AS t
        WHERE t.queue = p_queue AND t.owner = p_owner AND t.until_us > {now};
    IF FOUND THEN
        RETURN NEXT;
        RETURN;
    END IF;
    SELECT l.* INTO v_lane FROM {queue_lanes} AS l
        WHERE l.queue = p_queue AND l.kind = 2 AND l.name = p_key;
    IF NOT FOUND THEN
        INSERT INTO {queue_lanes} AS l (queue, kind, name) VALUES (p_queue, 2, p_key)
            ON CONFLICT DO NOTHING RETURNING l.* INTO v_lane;
        IF NOT FOUND THEN
            o_code := 9;
            RETURN NEXT;
            RETURN;
        END IF;
        v_locked := true;
    END IF;
    LOOP
        -- The clock, now that nobody can change it.
        v_now := {now};
        IF {strange v_lane v_now 3} THEN
            o_code := 8;
            RETURN NEXT;
            RETURN;
        END IF;
        v_blocked := coalesce(v_lane.standing IN (0, 2) AND v_lane.expires_us > v_now, false);
        IF v_blocked AND v_lane.owner <> p_owner THEN
            o_code := 0;
            o_token := v_lane.token;
            o_label := v_lane.label;
            o_age := v_now - CASE WHEN v_lane.granted_us < 0 THEN 0 ELSE v_lane.granted_us END;
            o_remaining := v_lane.expires_us - v_now;
            RETURN NEXT;
            RETURN;
        END IF;
        EXIT WHEN v_locked;
        SELECT l.* INTO v_lane FROM {queue_lanes} AS l
            WHERE l.queue = p_queue AND l.kind = 2 AND l.name = p_key
            FOR UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            o_code := 9;
            RETURN NEXT;
            RETURN;
        END IF;
        v_locked := true;
    END LOOP;
    o_mark := v_lane.mark;
    IF v_blocked AND v_lane.standing = 2 THEN
        o_code := 4;
    ELSIF v_blocked THEN
        -- The same owner once more.
        o_token := CASE WHEN p_exactly > 0 THEN p_exactly ELSE v_lane.token END;
        IF o_token < v_lane.mark AND p_exactly > 0 THEN
            o_code := 2;
        ELSE
            UPDATE {queue_lanes} AS l SET mark = greatest(l.mark, o_token), token = o_token,
                expires_us = greatest(l.expires_us, v_now + p_ttl)
                WHERE l.queue = p_queue AND l.kind = 2 AND l.name = p_key;
            o_code := 1;
        END IF;
    ELSIF p_exactly > 0 AND p_exactly <= v_lane.mark THEN
        o_code := 2;
    ELSE
        o_token := CASE WHEN p_exactly > 0 THEN p_exactly ELSE greatest(
            v_lane.mark + 1, p_after + 1, least(v_now, 4503599627370496)
        ) END;
        IF o_token > 9007199254740991 THEN
            o_code := 6;
        ELSE
            UPDATE {queue_lanes} AS l SET mark = o_token, item = NULL, owner = p_owner,
                token = o_token, label = p_label, granted_us = v_now,
                expires_us = v_now + p_ttl, standing = 0
                WHERE l.queue = p_queue AND l.kind = 2 AND l.name = p_key;
            o_code := 1;
            IF v_lane.standing IN (0, 2) THEN
                o_over := v_lane.token;
                o_label := v_lane.label;
            END IF;
        END IF;
    END IF;
    RETURN NEXT;
END
{quote};

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
        UPDATE {queue_lanes} AS l SET standing = p_standing
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
BEGIN
    -- What a crash undoes of these waits out its time.
    IF 2 = ALL (p_ops) THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    FOR i IN 1 .. cardinality(p_kinds) LOOP
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
            EXIT WHEN v_locked OR o_code IS DISTINCT FROM 1;
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
BEGIN
    -- Whatever this owner asked for is committed, or will find the tombstone.
    PERFORM pg_advisory_xact_lock(p_lock);
    v_now := {now};
    INSERT INTO {queue_tombs} AS t (queue, owner, reason, until_us)
        VALUES (p_queue, p_owner, 0, v_now + p_keep)
        ON CONFLICT (queue, owner) DO UPDATE
            SET reason = 0, until_us = greatest(t.until_us, excluded.until_us);
    o_busy := false;
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
    {queue_put}(text, bytea[], bytea[], text[], text[], bigint[]),
    {queue_claim}(text, bytea, bigint, bigint, text, integer),
    {queue_key}(text, text, bytea, bigint, bigint, text, bigint, bigint),
    {queue_free}(text, smallint, text, smallint, bigint),
    {queue_settle}(text, smallint[], text[], bytea[], bytea[], bigint[], smallint[], bigint[],
        boolean[], text[], bigint),
    {queue_abandon}(text, text, bytea, bigint, bigint),
    {queue_fence}(text, smallint, text, bigint, boolean, bigint),
    {queue_requeue}(text, bytea),
    {queue_complete}(text, smallint, text, bytea, bytea, bigint, bigint)
    FROM PUBLIC;
