-- What each operation does to a resource. What core/rules.py means, tested against it; where that changes, this does.
-- The caller has locked the entry, its children where they may end with it, the parent that an acquire names, and all
-- that are above one which somebody else may end.

-- When the lease really ends: its own expiry or, if sooner, the end of its parent.
CREATE OR REPLACE FUNCTION holds_until(e entries) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    bound bigint;
    above entries := e;
BEGIN
    FOR depth IN 0..9 LOOP
        IF above.parent = '' OR above.lease_id = '' OR depth > 8 THEN
            RETURN least(bound, above.expiry);
        END IF;
        IF above.ttl <> 0 THEN
            bound := least(bound, above.expiry);
        END IF;
        e := above;
        SELECT * INTO above FROM entries p WHERE p.namespace = e.namespace AND p.resource = e.parent;
        IF NOT FOUND OR above.token <> e.parent_token OR above.lease_id = '' THEN
            -- Ending a lease ends its children in the same step, so this parent was forgotten: long over.
            RETURN 0;
        END IF;
    END LOOP;
END $$;

-- When others may acquire what nobody holds; `over` is when the lease ends or ended.
CREATE OR REPLACE FUNCTION free_from(e entries, over bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN e.lease_id = '' THEN over ELSE over + e.lock_delay END
$$;

-- What keeps everybody out of a resource that nobody holds and that isn't free yet.
CREATE OR REPLACE FUNCTION closed_by(e entries) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN e.lease_id = '' THEN 'hold_at_least' ELSE 'lock_delay' END
$$;

CREATE OR REPLACE FUNCTION event(kind text, e entries, now bigint, ttl bigint) RETURNS word LANGUAGE sql AS $$
    SELECT ROW('', '', json_build_array(kind, e.resource, e.token, e.holder, now, ttl))::word
$$;

CREATE OR REPLACE FUNCTION answer(VARIADIC parts text[]) RETURNS reply LANGUAGE sql AS $$
    SELECT ROW('[' || array_to_string(parts, ',') || ']', NULL, NULL)::reply
$$;

-- That it was granted, and what the holder before has handed over.
CREATE OR REPLACE FUNCTION granted(token bigint, ttl bigint, state text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '[1,' || token || ',' || ttl || CASE WHEN state = '' THEN '' ELSE ',' || to_json(state) END || ']'
$$;

-- End a live lease, and in the same step whatever stands under it. The operation: a release, which may name a successor.
CREATE OR REPLACE FUNCTION finish(e entries, o operation, now bigint, kind text, free_at bigint, watched boolean)
RETURNS word[] LANGUAGE plpgsql AS $$
DECLARE
    before entries := e;
    child entries;
    over bigint;
    said word[];
BEGIN
    IF e.children THEN
        FOR child IN
            SELECT * FROM entries c
             WHERE c.namespace = e.namespace AND c.parent = e.resource AND c.parent_token = e.token AND c.lease_id <> ''
             ORDER BY c.resource
        LOOP
            over := CASE WHEN child.lock_delay > 0 THEN holds_until(child) END;
            IF over <= now AND now < free_from(child, over) THEN
                -- It ran out before, and its lock delay goes on.
                UPDATE entries c SET expiry = over, parent = '', parent_token = 0, grace = 0
                 WHERE c.namespace = child.namespace AND c.resource = child.resource;
            ELSE
                said := said || finish(child, NULL, now, kind, now, watched);
            END IF;
        END LOOP;
    END IF;
    e.expiry := free_at;
    IF o.holder <> '' THEN
        e := hand_over(e, o, now, free_at);
        said := said || call_of(before, e) || call_of_first(e, now);
    ELSIF e.waiting THEN
        e := call_next(e, now);
        said := said || call_of(before, e);
    END IF;
    UPDATE entries t
       SET lease_id = '', expiry = free_at, ended = kind, children = false, notify = '', waiting = e.waiting,
           reserved_until = e.reserved_until, reserved_id = e.reserved_id, reserved_for = e.reserved_for,
           reserved_state = e.reserved_state, state = '', children_ended = 0
     WHERE t.namespace = e.namespace AND t.resource = e.resource;
    IF watched THEN
        said := said || event(kind, e, now, free_at - now);
    END IF;
    RETURN said;
END $$;

-- Call the holder whose lease somebody else ends; and count it in all leases above, whose renewal tells of it.
CREATE OR REPLACE FUNCTION tell_of_the_end(e entries) RETURNS word[] LANGUAGE plpgsql AS $$
DECLARE
    below entries := e;
BEGIN
    WHILE below.parent <> '' LOOP
        UPDATE entries p SET children_ended = p.children_ended + 1
         WHERE p.namespace = e.namespace AND p.resource = below.parent AND p.token = below.parent_token
           AND p.lease_id <> ''
        RETURNING p.* INTO below;
        EXIT WHEN NOT FOUND;
    END LOOP;
    IF e.notify = '' THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY[ROW(e.notify, e.lease_id, json_build_array('revoked', e.resource, e.lease_id))::word];
END $$;

-- Renew a live lease no more, so that it ends as promised, and tell its holder.
CREATE OR REPLACE FUNCTION end_at_expiry(e entries, now bigint, promised bigint, watched boolean) RETURNS word[]
LANGUAGE plpgsql AS $$
DECLARE
    said word[] := tell_of_the_end(e);
BEGIN
    -- With no time of its own it would last as long as its parent goes on; from here on it has what was promised.
    UPDATE entries t
       SET revoked = true, ttl = CASE WHEN t.ttl = 0 THEN promised - now ELSE t.ttl END,
           expiry = CASE WHEN t.ttl = 0 THEN promised ELSE t.expiry END
     WHERE t.namespace = e.namespace AND t.resource = e.resource;
    IF watched THEN
        said := said || event('revoked', e, now, promised - now);
    END IF;
    RETURN said;
END $$;

-- Why the parent can't stand above the resource: it is the same, under it, or too deep. NULL: it can.
CREATE OR REPLACE FUNCTION refusal_of_parent(ns text, o operation) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    above entries;
    name text := o.parent;
    minted bigint := o.parent_token;
BEGIN
    IF o.parent = o.resource THEN
        RETURN 'itself';
    END IF;
    FOR depth IN 1..8 LOOP
        SELECT * INTO above FROM entries p WHERE p.namespace = ns AND p.resource = name;
        IF NOT FOUND OR above.parent = '' OR above.token <> minted OR above.lease_id = '' THEN
            RETURN NULL;
        END IF;
        IF depth >= 8 OR above.parent = o.resource THEN
            RETURN 'levels';
        END IF;
        name := above.parent;
        minted := above.parent_token;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION grant_it(
    e entries, o operation, now bigint, floor bigint, ended_at bigint, said word[], watched boolean
) RETURNS reply LANGUAGE plpgsql AS $$
DECLARE
    above entries;
    bound bigint := 0;
    minted bigint;
    ends bigint;
BEGIN
    IF o.parent <> '' THEN
        SELECT * INTO above FROM entries p WHERE p.namespace = e.namespace AND p.resource = o.parent;
        IF FOUND AND above.token = o.parent_token AND above.lease_id <> '' THEN
            bound := holds_until(above);
        END IF;
        IF bound <= now THEN
            IF e.waiting THEN
                PERFORM save(e);
            END IF;
            RETURN ROW('[4,"expired",0]', said, NULL)::reply;
        END IF;
        IF NOT above.children THEN
            UPDATE entries p SET children = true WHERE p.namespace = e.namespace AND p.resource = o.parent;
        END IF;
    END IF;
    IF e.children THEN
        -- What stood under the lease that ended before this one has ended with it, at that time, and for good.
        UPDATE entries c
           SET expiry = CASE WHEN c.ttl = 0 THEN ended_at ELSE least(c.expiry, ended_at) END,
               parent = '', parent_token = 0, grace = 0
         WHERE c.namespace = e.namespace AND c.parent = e.resource AND c.parent_token = e.token AND c.lease_id <> '';
    END IF;
    minted := greatest(greatest(e.token, floor, o.token) + 1, now);
    IF minted >= 9007199254740992 THEN
        IF e.waiting THEN
            PERFORM save(e);
        END IF;
        RETURN answer('7', '"token"', minted::text);
    END IF;
    IF e.waiting THEN
        e.reserved_until := NULL;
        e := tidy(e, now, leaving => o.lease_id);
    END IF;
    ends := CASE WHEN o.parent = '' THEN now + o.ttl WHEN o.ttl = 0 THEN bound ELSE least(now + o.ttl, bound) END;
    UPDATE entries t
       SET token = minted, lease_id = o.lease_id, holder = o.holder, ttl = o.ttl, expiry = ends, granted = now,
           renewed = now, renewals = 0, metadata = o.metadata, notify = o.notify, parent = o.parent,
           parent_token = o.parent_token, soft = o.soft, grace = o.grace, lock_delay = o.lock_delay,
           hold_at_least = o.hold_at_least, ended = '', revoked = false, children = false, waiting = e.waiting,
           reserved_until = NULL, reserved_id = '', reserved_for = '', reserved_state = '', state = e.reserved_state,
           children_ended = 0
     WHERE t.namespace = e.namespace AND t.resource = e.resource;
    IF watched THEN
        e.token := minted;
        e.holder := o.holder;
        said := said || event('granted', e, now, ends - now);
    END IF;
    RETURN ROW(granted(minted, ends - now, e.reserved_state), said, NULL)::reply;
END $$;

CREATE OR REPLACE FUNCTION acquire_one(e entries, o operation, now bigint, floor bigint, watched boolean) RETURNS reply
LANGUAGE plpgsql AS $$
DECLARE
    before entries := e;
    refusal text;
    expiry bigint;
    free_at bigint;
    said word[];
BEGIN
    IF o.parent <> '' THEN
        refusal := refusal_of_parent(e.namespace, o);
        IF refusal IS NOT NULL THEN
            RETURN answer('7', to_json(refusal)::text, '""');
        END IF;
    END IF;
    IF e.waiting AND EXISTS (
        SELECT FROM tombstones t
         WHERE t.namespace = e.namespace AND t.resource = o.resource AND t.lease_id = o.lease_id AND t.kept_until > now
    ) THEN
        RETURN answer('4', '"released"', '0');
    END IF;
    expiry := CASE WHEN e.parent = '' THEN e.expiry ELSE holds_until(e) END;
    free_at := free_from(e, expiry);
    IF e.lease_id <> '' THEN
        IF now < expiry THEN
            IF e.lease_id = o.lease_id THEN
                RETURN ROW(granted(e.token, expiry - now, e.state), NULL, NULL)::reply;
            END IF;
            IF o.recover AND e.soft > 0 AND e.soft <= now - e.granted AND NOT e.revoked THEN
                said := end_at_expiry(e, now, expiry, watched);
            END IF;
            RETURN wait(e, o, now, e.holder, expiry, said);
        END IF;
        IF e.lease_id = o.lease_id THEN
            -- Its own grant has run out: a request that was that late must not start a second turn by itself.
            RETURN answer('4', '"expired"', '0');
        END IF;
    END IF;
    IF now < free_at THEN
        RETURN wait(e, o, now, e.holder, free_at, NULL, closed_by(e));
    END IF;
    IF e.waiting THEN
        e := settle(e, free_at, now, o.lease_id);
        said := call_of(before, e);
        IF e.reserved_until IS NOT NULL AND (
            CASE WHEN e.reserved_for <> '' THEN e.reserved_for <> o.holder ELSE e.reserved_id <> o.lease_id END
        ) THEN
            RETURN wait(e, o, now, '', e.reserved_until, said);
        END IF;
    END IF;
    RETURN grant_it(e, o, now, floor, expiry, said, watched);
END $$;

CREATE OR REPLACE FUNCTION in_grace(e entries, over bigint, now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN now < over + e.grace AND e.parent = '' AND e.reserved_until IS NULL AND NOT EXISTS (
        SELECT FROM waiters w WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.expiry > now);
END $$;

CREATE OR REPLACE FUNCTION renew_one(e entries, o operation, now bigint) RETURNS reply LANGUAGE plpgsql AS $$
DECLARE
    above entries;
    expiry bigint;
    bound bigint;
    extended bigint;
BEGIN
    IF e.lease_id <> o.lease_id THEN
        RETURN answer('4', CASE
            WHEN e.token = o.token AND e.ended <> '' THEN to_json(e.ended)::text
            WHEN e.token > o.token THEN '"taken"'
            ELSE '"expired"'
        END, '0');
    END IF;
    expiry := CASE WHEN e.parent = '' THEN e.expiry ELSE holds_until(e) END;
    IF now >= expiry AND NOT in_grace(e, expiry, now) THEN
        RETURN answer('4', '"expired"', '0');
    ELSIF e.revoked THEN
        RETURN answer('4', '"revoked"', greatest(0, expiry - now)::text);
    END IF;
    extended := greatest(e.expiry, now + o.ttl);  -- never shortened: an earlier promise may be relied upon
    IF e.parent <> '' THEN
        SELECT * INTO above FROM entries p WHERE p.namespace = e.namespace AND p.resource = e.parent;
        IF NOT FOUND OR above.token <> e.parent_token THEN
            RETURN answer('4', '"expired"', '0');
        END IF;
        bound := holds_until(above);
        IF bound <= now THEN
            RETURN answer('4', '"expired"', '0');
        END IF;
        extended := CASE WHEN e.ttl = 0 THEN bound ELSE least(extended, bound) END;
    END IF;
    UPDATE entries t
       SET expiry = extended, ttl = CASE WHEN t.ttl = 0 THEN 0 ELSE greatest(t.ttl, o.ttl) END, renewed = now,
           renewals = t.renewals + 1
     WHERE t.namespace = e.namespace AND t.resource = e.resource;
    IF e.children_ended > 0 THEN
        RETURN answer('3', (extended - now)::text, e.children_ended::text);
    END IF;
    RETURN answer('3', (extended - now)::text);
END $$;

CREATE OR REPLACE FUNCTION release_one(e entries, o operation, now bigint, watched boolean) RETURNS reply
LANGUAGE plpgsql AS $$
DECLARE
    before entries := e;
    expiry bigint;
    free_at bigint;
    said word[];
    unsaid text;
BEGIN
    expiry := CASE WHEN e.parent = '' THEN e.expiry ELSE holds_until(e) END;
    IF o.flag THEN
        -- Whatever has become of the id so far: a copy of the request that asked for it may still be on its way.
        PERFORM bury(e, o.lease_id, now + 60000000);
        e.waiting := true;
        e := tidy(e, now);
    END IF;
    IF e.lease_id = o.lease_id AND now < expiry THEN
        free_at := CASE WHEN e.hold_at_least = 0 THEN now ELSE greatest(now, e.granted + e.hold_at_least) END;
        said := finish(e, o, now, 'released', free_at, watched);
        RETURN ROW(format('[5,%s]', free_at - now), said, NULL)::reply;
    END IF;
    IF e.waiting AND EXISTS (
        SELECT FROM waiters w WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.lease_id = o.lease_id
    ) THEN
        free_at := free_from(e, expiry);
        IF now >= free_at THEN
            e := settle(e, free_at, now, '');
            unsaid := o.lease_id;
        END IF;
        DELETE FROM waiters w WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.lease_id = o.lease_id;
        IF e.reserved_id = o.lease_id THEN
            e := reserve(e, NULL, NULL);
        END IF;
        IF now >= free_at OR e.lease_id = '' THEN
            e := call_next(e, now);
            IF e.reserved_for <> '' THEN
                said := call_of_first(e, now);  -- who would have told the others when that is over has gone
            END IF;
        END IF;
        said := said || call_of(before, e);
        PERFORM save(tidy(e, now));
        RETURN ROW('[6,"was waiting"]', said, unsaid)::reply;
    END IF;
    IF e.lease_id = o.lease_id THEN
        e.grace := 0;  -- it is not wanted any more: a renewal still on its way must not bring it back
        PERFORM save(e);
    ELSIF o.flag THEN
        PERFORM save(e);
    END IF;
    RETURN answer('6', '"not held"');
END $$;

-- Open a resource that nobody holds. A lock delay protects what can't check tokens: it takes force to end it.
CREATE OR REPLACE FUNCTION reopen(e entries, o operation, now bigint, free_at bigint, watched boolean) RETURNS reply
LANGUAGE plpgsql AS $$
DECLARE
    before entries := e;
    said word[];
BEGIN
    IF closed_by(e) = 'lock_delay' AND NOT o.flag THEN
        RETURN ROW(json_build_array(2, e.holder, e.token, free_at - now, 0, false, closed_by(e)), NULL, NULL)::reply;
    END IF;
    IF e.waiting THEN
        e := bring_forward(e, now, free_at - now);
        said := call_of(before, e);
        IF e.reserved_for <> '' THEN
            said := said || call_of_first(e, now);
        END IF;
    END IF;
    RETURN ROW('[5,0]', said || finish(e, NULL, now, 'revoked', now, watched), NULL)::reply;
END $$;

CREATE OR REPLACE FUNCTION revoke_one(e entries, o operation, now bigint, watched boolean) RETURNS reply
LANGUAGE plpgsql AS $$
DECLARE
    expiry bigint := holds_until(e);
    free_at bigint := free_from(e, expiry);
    said word[];
BEGIN
    IF now >= free_at OR o.token <> e.token THEN
        RETURN answer('6', '"not held"');
    ELSIF e.lease_id = '' OR now >= expiry THEN
        RETURN reopen(e, o, now, free_at, watched);
    END IF;
    IF o.flag THEN
        said := tell_of_the_end(e) || finish(e, o, now, 'revoked', now, watched);
        RETURN ROW('[5,0]', said, NULL)::reply;
    END IF;
    RETURN ROW(format('[5,%s]', expiry - now), end_at_expiry(e, now, expiry, watched), NULL)::reply;
END $$;

-- What becomes of one operation; the entry is NULL where there is none, which only an acquire and an abandonment make.
CREATE OR REPLACE FUNCTION decide(e entries, o operation, now bigint, floor bigint, watched boolean) RETURNS reply
LANGUAGE plpgsql AS $$
BEGIN
    IF e.resource IS NULL THEN
        RETURN CASE
            WHEN o.kind <> 'N' THEN answer('6', '"not held"')
            WHEN o.token < 0 THEN answer('4', '"taken"', '0')
            ELSE answer('4', '"expired"', '0')
        END;
    END IF;
    CASE o.kind
        WHEN 'A' THEN RETURN acquire_one(e, o, now, floor, watched);
        WHEN 'N' THEN RETURN renew_one(e, o, now);
        WHEN 'L' THEN RETURN release_one(e, o, now, watched);
        ELSE RETURN revoke_one(e, o, now, watched);
    END CASE;
END $$;
