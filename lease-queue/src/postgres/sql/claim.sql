
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
    v_n integer;
    -- Whose deduplication key is another's.
    v_others boolean[] := array_fill(false, ARRAY[cardinality(p_ids)]);
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
        -- Others' owners must not wait for us while we wait for more: rather begin anew.
        PERFORM set_config('lock_timeout', '20ms', true);
    END LOOP;
    v_now := {now};
    -- Whoever puts under the same keys takes them in the same order, so that no two wait
    -- for each other; and whoever completes what is under a key is not waited for.
    FOR v_n IN
        SELECT u.n FROM unnest(p_dedups) WITH ORDINALITY AS u (key, n) WHERE u.key IS NOT NULL
        ORDER BY u.key COLLATE "C", u.n
    LOOP
        v_id := p_ids[v_n];
        CONTINUE WHEN EXISTS (
            SELECT FROM {queue_items} AS t WHERE t.queue = p_queue AND t.id = v_id
        ) OR EXISTS (
            SELECT FROM {queue_settled} AS s WHERE s.queue = p_queue AND s.item = v_id
                AND s.completed AND s.until_us > v_now
        );
        SELECT d.item INTO o_other FROM {queue_dedup} AS d
            WHERE d.queue = p_queue AND d.key = p_dedups[v_n] AND d.until_us > v_now;
        IF NOT FOUND THEN
            INSERT INTO {queue_dedup} AS d (queue, key, item, until_us)
                VALUES (p_queue, p_dedups[v_n], v_id, 9223372036854775807)
                ON CONFLICT (queue, key) DO UPDATE
                    SET item = excluded.item, until_us = excluded.until_us
                    WHERE d.until_us <= v_now;
            CONTINUE WHEN FOUND;
            SELECT d.item INTO o_other FROM {queue_dedup} AS d
                WHERE d.queue = p_queue AND d.key = p_dedups[v_n];
        END IF;
        v_others[v_n] := true;
        -- Unless it was put by a copy of this very request meanwhile.
        IF o_other <> v_id THEN
            o_n := v_n;
            RETURN NEXT;
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality(p_ids) LOOP
        v_id := p_ids[i];
        CONTINUE WHEN v_others[i] OR EXISTS (
            SELECT FROM {queue_items} AS t WHERE t.queue = p_queue AND t.id = v_id
        ) OR EXISTS (
            SELECT FROM {queue_settled} AS s WHERE s.queue = p_queue AND s.item = v_id
                AND s.completed AND s.until_us > v_now
        );
        v_ready := v_now + p_delays[i];
        INSERT INTO {queue_items} AS t (queue, id, grp, dedup, body, put_us, ready_us)
            VALUES (p_queue, v_id, p_groups[i], p_dedups[i], p_bodies[i], v_now, v_ready)
            ON CONFLICT DO NOTHING RETURNING t.seq INTO v_place;
        CONTINUE WHEN NOT FOUND;
        -- Others who put it wait from here on. Who did so before may have had it
        -- completed since we looked.
        IF EXISTS (
            SELECT FROM {queue_settled} AS s WHERE s.queue = p_queue AND s.item = v_id
                AND s.completed
        ) THEN
            DELETE FROM {queue_items} AS t WHERE t.queue = p_queue AND t.id = v_id;
            CONTINUE;
        END IF;
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

-- Claims the first items of lanes that nobody owns, for some owners in turn: up to so
-- many for each. Owners come in the order of their locks' numbers.
CREATE OR REPLACE FUNCTION {queue_claim}(
    p_queue text, p_owners bytea[], p_locks bigint[], p_ttls bigint[], p_labels text[],
    p_most integer[]
) RETURNS TABLE (
    o_n integer, o_code integer, o_kind smallint, o_name text, o_item bytea, o_token bigint,
    o_body bytea, o_attempt integer, o_age bigint, o_next bigint
)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
SET enable_sort = off SET enable_bitmapscan = off
AS {quote}
-- leases: body 1
DECLARE
    v_lane record;
    v_head record;
    v_now bigint;
    -- How many each takes, and of each item that is taken, who; who is refused or has
    -- something.
    v_more integer[] := p_most;
    v_slots integer[];
    v_told boolean[] := array_fill(false, ARRAY[cardinality(p_owners)]);
    -- Where the lanes are that are locked here: nobody can move them meanwhile.
    v_lanes tid[];
    v_rest integer;
    v_claimed boolean := false;
    v_exhausted boolean := false;
    v_strange boolean := false;
BEGIN
    -- Who abandons one of these owners comes before or after all of this.
    PERFORM pg_advisory_xact_lock(u.lock) FROM unnest(p_locks) AS u (lock);
    v_now := {now};
    FOR o_n, o_code IN
        SELECT e.n::integer, e.code FROM (
            SELECT u.n, (
                SELECT 3 + t.reason FROM {queue_tombs} AS t
                WHERE t.queue = p_queue AND t.owner = u.owner AND t.until_us > v_now
            ) AS code
            FROM unnest(p_owners) WITH ORDINALITY AS u (owner, n)
            OFFSET 0
        ) AS e
        WHERE e.code IS NOT NULL
    LOOP
        v_more[o_n] := 0;
        v_told[o_n] := true;
        RETURN NEXT;
    END LOOP;
    IF FOUND OR cardinality(p_owners) > 1 THEN
        SELECT array_agg(u.n::integer) INTO v_slots
            FROM unnest(v_more) WITH ORDINALITY AS u (more, n), generate_series(1, u.more);
        IF v_slots IS NULL THEN
            RETURN;
        END IF;
    ELSE
        v_slots := array_fill(1, p_most);
    END IF;
    LOOP
        SELECT array_agg(l.tid) INTO v_lanes FROM (
            SELECT l.ctid AS tid FROM {queue_lanes} AS l
            WHERE l.queue = p_queue AND l.next_us <= v_now
            ORDER BY l.next_us, l.place LIMIT cardinality(v_slots)
            FOR UPDATE SKIP LOCKED
        ) AS l;
        EXIT WHEN v_lanes IS NULL;
        -- In other statements than the locks, so that the items are those of now.
        v_now := {now};
        o_code := 1;
        -- Those that are as they should be in one statement; few are quicker one by one.
        IF cardinality(v_lanes) > 2 THEN
            v_rest := cardinality(v_lanes);
            FOR o_n, o_kind, o_name, o_item, o_token, o_body, o_attempt, o_age IN
                WITH taken AS (
                    UPDATE {queue_items} AS t SET attempts = least(t.attempts, 2147483646) + 1
                    FROM (
                        SELECT u.n, u.tid, l.kind, l.name,
                            -- A clock gone wild must not use the lane's tokens up.
                            greatest(l.mark + 1, least(v_now, 4503599627370496)) AS token,
                            CASE l.kind WHEN 0 THEN (
                                SELECT h.ctid FROM {queue_items} AS h
                                WHERE h.queue = p_queue AND h.grp = l.name AND h.state = 0
                                ORDER BY h.seq LIMIT 1
                            ) ELSE (
                                SELECT h.ctid FROM {queue_items} AS h
                                WHERE h.queue = p_queue AND h.id = l.item
                            ) END AS head
                        FROM unnest(v_lanes) WITH ORDINALITY AS u (tid, n)
                        -- Each where it is, and by no index.
                        CROSS JOIN LATERAL (
                            SELECT l.* FROM {queue_lanes} AS l WHERE l.ctid = u.tid OFFSET 0
                        ) AS l
                        WHERE l.kind IN (0, 1) AND l.mark BETWEEN 0 AND 9007199254740990
                            AND (l.standing IN (0, 2) AND l.expires_us > v_now) IS NOT TRUE
                            AND NOT {strange l v_now 3}
                        OFFSET 0
                    ) AS j
                    WHERE t.ctid = j.head AND t.state = 0 AND t.ready_us <= v_now
                    RETURNING j.n, j.tid, j.token, t.id, t.seq, t.body, t.attempts, t.put_us
                )
                UPDATE {queue_lanes} AS l SET
                    mark = j.token, item = j.id, owner = p_owners[v_slots[j.n]], token = j.token,
                    label = p_labels[v_slots[j.n]], granted_us = v_now,
                    expires_us = v_now + p_ttls[v_slots[j.n]], standing = 0,
                    next_us = v_now + p_ttls[v_slots[j.n]], place = j.seq
                FROM taken AS j WHERE l.ctid = j.tid
                RETURNING v_slots[j.n], l.kind, l.name, j.id, j.token, j.body, j.attempts,
                    -- What somebody else wrote may be too much for a subtraction.
                    v_now - greatest(j.put_us, 0)
            LOOP
                v_told[o_n] := true;
                v_claimed := true;
                v_rest := v_rest - 1;
                RETURN NEXT;
            END LOOP;
            EXIT WHEN v_rest = 0;
        END IF;
        -- The others are where they were.
        FOR v_lane IN
            SELECT u.n, u.tid, l.* FROM unnest(v_lanes) WITH ORDINALITY AS u (tid, n)
            JOIN {queue_lanes} AS l ON l.ctid = u.tid
        LOOP
            -- What somebody else wrote: granted to nobody while it may be a live claim,
            -- and in no other's way.
            IF v_lane.kind NOT IN (0, 1) OR v_lane.mark NOT BETWEEN 0 AND 9007199254740991
                OR {strange v_lane v_now 3} THEN
                UPDATE {queue_lanes} AS l SET next_us = v_now + 10000000
                    WHERE l.ctid = v_lane.tid;
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
                    WHERE l.ctid = v_lane.tid;
                CONTINUE;
            END IF;
            -- A clock gone wild must not use the lane's tokens up.
            o_token := greatest(v_lane.mark + 1, least(v_now, 4503599627370496));
            IF o_token > 9007199254740991 THEN
                -- In no other's way either.
                UPDATE {queue_lanes} AS l SET next_us = v_now + 10000000
                    WHERE l.ctid = v_lane.tid;
                v_exhausted := true;
                CONTINUE;
            END IF;
            o_n := v_slots[v_lane.n];
            UPDATE {queue_items} AS t SET attempts = least(t.attempts, 2147483646) + 1
                WHERE t.queue = p_queue AND t.id = v_head.id
                RETURNING t.attempts, t.body, v_now - greatest(t.put_us, 0)
                INTO o_attempt, o_body, o_age;
            UPDATE {queue_lanes} AS l SET
                mark = o_token, item = v_head.id, owner = p_owners[o_n], token = o_token,
                label = p_labels[o_n], granted_us = v_now, expires_us = v_now + p_ttls[o_n],
                standing = 0, next_us = v_now + p_ttls[o_n], place = v_head.seq
                WHERE l.ctid = v_lane.tid;
            o_kind := v_lane.kind;
            o_name := v_lane.name;
            o_item := v_head.id;
            v_told[o_n] := true;
            v_claimed := true;
            RETURN NEXT;
        END LOOP;
        EXIT WHEN v_claimed;
    END LOOP;
    IF NOT false = ANY (v_told) THEN
        RETURN;
    END IF;
    SELECT l.next_us - v_now INTO o_next FROM {queue_lanes} AS l
        WHERE l.queue = p_queue AND l.next_us > v_now ORDER BY l.next_us LIMIT 1;
    v_rest := CASE
        -- Somebody holds it locked, or it has just come.
        WHEN EXISTS (
            SELECT FROM {queue_lanes} AS l WHERE l.queue = p_queue AND l.next_us <= v_now
        ) THEN 9
        ELSE 0
    END;
    o_body := NULL;
    FOR i IN 1 .. cardinality(p_owners) LOOP
        IF NOT v_told[i] THEN
            o_n := i;
            o_code := CASE WHEN v_exhausted THEN 6 WHEN v_strange THEN 8 ELSE v_rest END;
            -- To the first of them alone, as if the others had come later.
            v_exhausted := false;
            v_strange := false;
            RETURN NEXT;
        END IF;
    END LOOP;
END
{quote};

-- Takes a place in the line of a key, or makes the owner's own last longer. For an answer
-- that grants nothing: what is lost with it is a place, so it waits for no disk. (No place
-- lasts longer than 121 s: one that does is of a clock that has stepped back.)
CREATE OR REPLACE FUNCTION {queue_wait}(
    p_queue text, p_key text, p_owner bytea, p_label text, p_lasts bigint, p_now bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS {quote}
-- leases: body 1
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE {queue_waiters} AS w SET until_us = p_now + p_lasts, missed = false
        WHERE w.queue = p_queue AND w.key = p_key AND w.owner = p_owner
            AND w.until_us > p_now AND w.until_us <= p_now + 121000000;
    IF NOT FOUND THEN
        -- One that has faded is no place any more.
        DELETE FROM {queue_waiters} AS w
            WHERE w.queue = p_queue AND w.key = p_key AND w.owner = p_owner;
        INSERT INTO {queue_waiters} AS w (queue, key, owner, label, since_us, until_us)
            VALUES (p_queue, p_key, p_owner, p_label, p_now, p_now + p_lasts)
            ON CONFLICT DO NOTHING;
    END IF;
END
{quote};

-- Claims a key.
CREATE OR REPLACE FUNCTION {queue_key}(
    p_queue text, p_key text, p_owner bytea, p_lock bigint, p_ttl bigint, p_label text,
    p_exactly bigint, p_after bigint, p_lasts bigint
) RETURNS TABLE (
    o_code integer, o_token bigint, o_label text, o_mark bigint, o_age bigint,
    o_remaining bigint, o_over bigint, o_ahead bigint
)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp
AS {quote}
-- leases: body 1
DECLARE
    v_lane record;
    v_now bigint;
    v_blocked boolean;
    v_locked boolean := false;
    v_line boolean := false;
    v_seq bigint;
    v_first record;
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
            IF p_lasts > 0 THEN
                PERFORM {queue_wait}(p_queue, p_key, p_owner, p_label, p_lasts, v_now);
            END IF;
            RETURN NEXT;
            RETURN;
        END IF;
        -- Who waits for a free key. A line that nobody was in at the first look is
        -- behind us.
        IF NOT v_blocked AND (v_line OR NOT v_locked) THEN
            v_line := EXISTS (
                SELECT FROM {queue_waiters} AS w WHERE w.queue = p_queue AND w.key = p_key
            );
        END IF;
        IF v_line AND NOT v_blocked THEN
            SELECT w.seq INTO v_seq FROM {queue_waiters} AS w
                WHERE w.queue = p_queue AND w.key = p_key AND w.owner = p_owner
                    AND w.until_us > v_now AND w.until_us <= v_now + 121000000;
            SELECT count(*) AS ahead, min(w.seq) AS seq INTO v_first FROM {queue_waiters} AS w
                WHERE w.queue = p_queue AND w.key = p_key AND (v_seq IS NULL OR w.seq < v_seq)
                    AND NOT w.missed
                    AND w.until_us > v_now AND w.until_us <= v_now + 121000000;
            -- A turn is a second.
            o_remaining := v_first.ahead * 1000000
                - greatest(v_now - greatest(v_lane.expires_us, 0), 0);
            IF v_first.ahead > 0 AND o_remaining > 0 THEN
                o_code := 10;
                o_ahead := v_first.ahead;
                IF p_lasts > 0 THEN
                    PERFORM {queue_wait}(p_queue, p_key, p_owner, p_label, p_lasts, v_now);
                ELSIF v_lane.mark > 0 THEN
                    SELECT 0, v_lane.mark, w.label, greatest(v_now - w.since_us, 0)
                        INTO o_code, o_token, o_label, o_age
                        FROM {queue_waiters} AS w
                        WHERE w.queue = p_queue AND w.key = p_key AND w.seq = v_first.seq;
                    o_code := coalesce(o_code, 10);
                END IF;
                RETURN NEXT;
                RETURN;
            END IF;
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
            IF v_line THEN
                -- Whoever was ahead has missed its turn.
                UPDATE {queue_waiters} AS w SET missed = true
                    WHERE w.queue = p_queue AND w.key = p_key AND NOT w.missed
                        AND (v_seq IS NULL OR w.seq < v_seq);
                DELETE FROM {queue_waiters} AS w
                    WHERE w.queue = p_queue AND w.key = p_key AND w.owner = p_owner;
            END IF;
            IF v_lane.standing IN (0, 2) THEN
                o_over := v_lane.token;
                o_label := v_lane.label;
            END IF;
        END IF;
    END IF;
    RETURN NEXT;
END
{quote};

-- Whoever is to use them is granted that by name.
REVOKE ALL ON FUNCTION
    {queue_put}(text, bytea[], bytea[], text[], text[], bigint[]),
    {queue_claim}(text, bytea[], bigint[], bigint[], text[], integer[]),
    {queue_wait}(text, text, bytea, text, bigint, bigint),
    {queue_key}(text, text, bytea, bigint, bigint, text, bigint, bigint, bigint)
    FROM PUBLIC;
