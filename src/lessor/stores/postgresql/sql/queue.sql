-- The queue for a resource: whose turn it is, who is called, and who has dropped out. What core/queue.py means, tested
-- against it. The entry is handed in and comes back changed; whoever asked saves it, and holds its lock.
--
-- Here and in the other files, what has a statement in it is PL/pgSQL: the server keeps its plans, and makes those of a
-- function in plain SQL anew at every call.

-- Replaced by tests that have a time of their own, which takes the schema's owner.
CREATE OR REPLACE FUNCTION clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

CREATE OR REPLACE FUNCTION save(e entries) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE entries t
       SET token = e.token, lease_id = e.lease_id, holder = e.holder, ttl = e.ttl, expiry = e.expiry,
           granted = e.granted, renewed = e.renewed, renewals = e.renewals, metadata = e.metadata, notify = e.notify,
           parent = e.parent, parent_token = e.parent_token, soft = e.soft, grace = e.grace,
           lock_delay = e.lock_delay, hold_at_least = e.hold_at_least, ended = e.ended, revoked = e.revoked,
           children = e.children, waiting = e.waiting, reserved_until = e.reserved_until,
           reserved_id = e.reserved_id, reserved_for = e.reserved_for, reserved_state = e.reserved_state,
           state = e.state, children_ended = e.children_ended
     WHERE t.namespace = e.namespace AND t.resource = e.resource;
END $$;

-- Keep the resource for this waiter, until 100 ms after the start of its turn, or with no waiter for nobody.
CREATE OR REPLACE FUNCTION reserve(e entries, id text, start bigint) RETURNS entries LANGUAGE plpgsql AS $$
BEGIN
    e.reserved_until := start + 100000;
    e.reserved_id := coalesce(id, '');
    e.reserved_for := '';
    e.reserved_state := '';
    RETURN e;
END $$;

-- Forget dead waiters and old tombstones, and take this id out of the queue.
CREATE OR REPLACE FUNCTION tidy(e entries, now bigint, leaving text DEFAULT '') RETURNS entries LANGUAGE plpgsql AS $$
BEGIN
    IF e.waiting THEN
        DELETE FROM waiters w
         WHERE w.namespace = e.namespace AND w.resource = e.resource AND (w.expiry <= now OR w.lease_id = leaving);
        DELETE FROM tombstones t WHERE t.namespace = e.namespace AND t.resource = e.resource AND t.kept_until <= now;
        e.waiting := e.reserved_until IS NOT NULL
            OR EXISTS (SELECT FROM waiters w WHERE w.namespace = e.namespace AND w.resource = e.resource)
            OR EXISTS (SELECT FROM tombstones t WHERE t.namespace = e.namespace AND t.resource = e.resource);
    END IF;
    RETURN e;
END $$;

-- Never grant this id; with too many of these, the first one is forgotten.
CREATE OR REPLACE FUNCTION bury(e entries, id text, until_then bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    others bigint;
    first text;
BEGIN
    SELECT count(*) INTO others FROM tombstones t
     WHERE t.namespace = e.namespace AND t.resource = e.resource AND t.lease_id <> id;
    IF others >= 10000 THEN
        SELECT t.lease_id INTO first FROM tombstones t
         WHERE t.namespace = e.namespace AND t.resource = e.resource AND t.lease_id <> id
         ORDER BY t.kept_until LIMIT 1;
        DELETE FROM tombstones t
         WHERE t.namespace = e.namespace AND t.resource = e.resource AND t.lease_id = first;
    END IF;
    INSERT INTO tombstones VALUES (e.namespace, e.resource, id, until_then)
        ON CONFLICT (namespace, resource, lease_id) DO UPDATE SET kept_until = excluded.kept_until;
END $$;

-- Where nobody has the free resource reserved, reserve it for the first live waiter.
CREATE OR REPLACE FUNCTION call_next(e entries, now bigint) RETURNS entries LANGUAGE plpgsql AS $$
DECLARE
    first text;
BEGIN
    IF e.waiting AND coalesce(e.reserved_until, 0) <= now THEN
        SELECT lease_id INTO first FROM waiters w
         WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.expiry > now AND NOT w.passed
         ORDER BY priority DESC, place LIMIT 1;
        -- Closed for a while yet (minimum hold): the turn begins when it opens.
        e := reserve(e, first, CASE WHEN FOUND THEN greatest(now, e.expiry) END);
    END IF;
    RETURN e;
END $$;

-- Who has it reserved now, on a resource that is free since then: what would have happened had somebody acted. The one
-- that shows up now has not missed its turn: then it is reserved for nobody.
CREATE OR REPLACE FUNCTION settle(e entries, free_since bigint, now bigint, showing text) RETURNS entries
LANGUAGE plpgsql AS $$
DECLARE
    w waiters;
    start bigint := free_since;
BEGIN
    IF e.reserved_until IS NOT NULL THEN
        IF e.reserved_until > now AND (e.reserved_for <> '' OR EXISTS (
            SELECT FROM waiters p
             WHERE p.namespace = e.namespace AND p.resource = e.resource AND p.lease_id = e.reserved_id
        )) THEN
            RETURN e;
        END IF;
        start := now;  -- the next one doesn't know that it has run out
        IF e.reserved_id <> showing THEN
            UPDATE waiters p SET passed = true
             WHERE p.namespace = e.namespace AND p.resource = e.resource AND p.lease_id = e.reserved_id;
        END IF;
        e := reserve(e, NULL, NULL);
    END IF;
    FOR w IN
        SELECT * FROM waiters p WHERE p.namespace = e.namespace AND p.resource = e.resource ORDER BY priority DESC, place
    LOOP
        EXIT WHEN w.lease_id = showing;
        CONTINUE WHEN w.passed OR w.expiry <= now;
        IF start + 100000 > now THEN
            RETURN reserve(e, w.lease_id, start);
        END IF;
        UPDATE waiters p SET passed = true
         WHERE p.namespace = e.namespace AND p.resource = e.resource AND p.place = w.place;
        start := start + 100000;
    END LOOP;
    RETURN e;
END $$;

-- Let the turns begin now on a resource that was closed for longer by that much; whose turn it is then has to be called.
CREATE OR REPLACE FUNCTION bring_forward(e entries, now bigint, earlier bigint) RETURNS entries LANGUAGE plpgsql AS $$
BEGIN
    IF e.reserved_for <> '' OR EXISTS (
        SELECT FROM waiters w
         WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.lease_id = e.reserved_id AND w.expiry > now
    ) THEN
        e.reserved_until := e.reserved_until - earlier;
        RETURN e;
    END IF;
    RETURN reserve(e, NULL, NULL);
END $$;

-- The call to a waiter; none where there is none, or it has no address.
CREATE OR REPLACE FUNCTION call_to(w waiters) RETURNS word[] LANGUAGE plpgsql AS $$
BEGIN
    IF w.notify <> '' THEN
        RETURN ARRAY[ROW(w.notify, w.lease_id, json_build_array('reserved', w.resource, w.lease_id))::word];
    END IF;
    RETURN NULL;
END $$;

-- The call to whoever has it reserved since, if somebody has.
CREATE OR REPLACE FUNCTION call_of(before entries, e entries) RETURNS word[] LANGUAGE plpgsql AS $$
DECLARE
    called waiters;
BEGIN
    IF e.reserved_id = '' OR (e.reserved_id = before.reserved_id AND e.reserved_until = before.reserved_until) THEN
        RETURN NULL;
    END IF;
    SELECT * INTO called FROM waiters w
     WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.lease_id = e.reserved_id;
    RETURN call_to(called);
END $$;

-- The call to the first waiter that it isn't reserved for: it asks, and so learns when to come by itself.
CREATE OR REPLACE FUNCTION call_of_first(e entries, now bigint) RETURNS word[] LANGUAGE plpgsql AS $$
DECLARE
    first waiters;
BEGIN
    SELECT * INTO first FROM waiters w
     WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.expiry > now AND NOT w.passed
       AND w.lease_id <> e.reserved_id
     ORDER BY priority DESC, place LIMIT 1;
    RETURN call_to(first);
END $$;

-- Keep the resource for the successor that its holder has named: the first waiter of that name, or whoever has it.
CREATE OR REPLACE FUNCTION hand_over(e entries, o operation, now bigint, free_at bigint) RETURNS entries
LANGUAGE plpgsql AS $$
DECLARE
    heir text;
BEGIN
    SELECT lease_id INTO heir FROM waiters w
     WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.expiry > now AND w.holder = o.holder
     ORDER BY priority DESC, place LIMIT 1;
    e.waiting := true;
    e.reserved_until := free_at + o.ttl;
    e.reserved_id := coalesce(heir, '');
    e.reserved_for := CASE WHEN heir IS NULL THEN o.holder ELSE '' END;
    e.reserved_state := o.metadata;
    RETURN e;
END $$;

-- Answer that it can't be had yet and, if asked to, keep or refresh the asker's place.
CREATE OR REPLACE FUNCTION wait(
    e entries, o operation, now bigint, by text, free_at bigint, said word[], closed text DEFAULT ''
) RETURNS reply LANGUAGE plpgsql AS $$
DECLARE
    mine waiters;
    queued bigint;
    ahead bigint := 0;
    refused boolean := false;
BEGIN
    IF o.flag THEN
        e := tidy(e, now);
        UPDATE waiters w SET expiry = now + 6000000, passed = false
         WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.lease_id = o.lease_id
        RETURNING * INTO mine;
        IF FOUND THEN
            SELECT count(*) INTO ahead FROM waiters w
             WHERE w.namespace = e.namespace AND w.resource = e.resource
               AND (w.priority > mine.priority OR (w.priority = mine.priority AND w.place < mine.place));
        ELSE
            SELECT count(*), count(*) FILTER (WHERE w.priority >= o.priority) INTO queued, ahead FROM waiters w
             WHERE w.namespace = e.namespace AND w.resource = e.resource;
            refused := o.queue_limit BETWEEN 1 AND queued;
            IF NOT refused THEN
                INSERT INTO waiters (namespace, resource, lease_id, holder, notify, since, expiry, priority)
                VALUES (e.namespace, e.resource, o.lease_id, o.holder, o.notify, now, now + 6000000, o.priority);
            END IF;
        END IF;
    ELSIF e.waiting THEN
        SELECT count(*) INTO ahead FROM waiters w
         WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.expiry > now AND w.priority >= o.priority;
    END IF;
    IF by = '' THEN
        ahead := greatest(ahead, 1);  -- behind the one that it is reserved for
    END IF;
    IF by = '' OR (o.flag AND NOT e.waiting) THEN
        -- Whose turn it is, or the next one to ask might find it otherwise.
        UPDATE entries t
           SET waiting = true, reserved_until = e.reserved_until, reserved_id = e.reserved_id,
               reserved_for = e.reserved_for, reserved_state = e.reserved_state
         WHERE t.namespace = e.namespace AND t.resource = e.resource;
    END IF;
    IF closed <> '' THEN
        RETURN ROW(json_build_array(2, by, e.token, free_at - now, ahead, refused, closed), said, NULL)::reply;
    ELSIF refused THEN
        RETURN ROW(json_build_array(2, by, e.token, free_at - now, ahead, true), said, NULL)::reply;
    END IF;
    RETURN ROW(json_build_array(2, by, e.token, free_at - now, ahead), said, NULL)::reply;
END $$;
