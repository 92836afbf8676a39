-- What clients do beside leases: saying which schema they know, watching, and forgetting.

-- Somebody watches for the next so many seconds: tell events. Returns which transactions may not know that yet: those
-- from the first number to before the second, as seen when this began.
CREATE OR REPLACE FUNCTION watch(ns text, seconds integer) RETURNS json
LANGUAGE plpgsql AS $$
DECLARE
    seen pg_snapshot := pg_current_snapshot();
    until_then bigint := clock_us() + seconds * 1000000::bigint;
BEGIN
    PERFORM commit_as(lax => true);
    INSERT INTO spaces AS s (namespace, watched_until) VALUES (ns, until_then)
        ON CONFLICT (namespace) DO UPDATE SET watched_until = greatest(s.watched_until, until_then);
    RETURN json_build_array(pg_snapshot_xmin(seen)::text::bigint, pg_snapshot_xmax(seen)::text::bigint);
END $$;

-- Forget dead entries among the next so many; what was the highest token among them is remembered for all. One at a
-- time does that, and waits for nobody.
CREATE OR REPLACE FUNCTION collect(ns text, most integer, kept_seconds integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    now bigint := clock_us();
    over bigint := now - greatest(kept_seconds, 0) * 1000000::bigint;
    space spaces;
    last text;
    e entries;
    highest bigint := 0;
    gone integer := 0;
BEGIN
    SELECT * INTO space FROM spaces s WHERE s.namespace = ns FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    PERFORM commit_as(lax => true);
    SELECT resource INTO last FROM entries n WHERE n.namespace = ns AND n.resource > space.collected
     ORDER BY n.resource OFFSET most - 1 LIMIT 1;
    FOR e IN
        SELECT * FROM entries d
         WHERE d.namespace = ns AND d.resource > space.collected AND (last IS NULL OR d.resource <= last)
           AND coalesce(d.reserved_until, 0) <= now
           AND greatest(
                CASE WHEN d.parent <> '' AND d.lease_id <> '' AND d.ttl = 0 THEN holds_until(d) ELSE d.expiry END,
                d.granted) + d.lock_delay + d.grace <= over
           FOR UPDATE SKIP LOCKED
    LOOP
        IF e.waiting THEN
            e := tidy(e, now);  -- in a statement after the lock: who queued up meanwhile is seen
            e.waiting := e.waiting AND (e.reserved_until IS NULL
                OR EXISTS (SELECT FROM waiters w WHERE w.namespace = ns AND w.resource = e.resource)
                OR EXISTS (SELECT FROM tombstones t WHERE t.namespace = ns AND t.resource = e.resource));
            CONTINUE WHEN e.waiting;
        END IF;
        DELETE FROM entries d WHERE d.namespace = ns AND d.resource = e.resource;
        highest := greatest(highest, e.token);
        gone := gone + 1;
    END LOOP;
    UPDATE spaces s SET floor = greatest(s.floor, highest), collected = coalesce(last, '') WHERE s.namespace = ns;
    RETURN gone;
END $$;

-- Go once through what a waiter and its predecessor do, and undo it. The first time, a connection compiles each function
-- and plans each statement, which takes longer than all the rest; whoever waits has time for that, and whoever hands on
-- to somebody who waits has not.
CREATE OR REPLACE FUNCTION rehearse(ns text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    name text := 'rehearsal/' || gen_random_uuid();
BEGIN
    BEGIN
        PERFORM acquire(ns, name, 'a', '', 1000000, false, '', 0, '', 100);
        PERFORM acquire(ns, name, 'b', '', 1000000, true, 'nobody', 0, '', 100);
        PERFORM release(ns, name, 'a', 100);
        PERFORM acquire(ns, name, 'b', '', 1000000, true, 'nobody', 0, '', 100);
        PERFORM release(ns, name, 'b', 100);
        PERFORM acquire(ns, name, 'c', '', 1000000, false, '', 0, '', 100);
        PERFORM acquire(ns, name, 'd', 'heir', 1000000, true, 'nobody', 0, '', 100), contenders(ns, name);
        PERFORM apply(ns, json_build_array(json_build_object(
            'kind', 'L', 'resource', name, 'lease_id', 'c', 'holder', 'heir', 'ttl', 1000000, 'metadata', 'left')), 100);
        PERFORM acquire(ns, name, 'd', 'heir', 1000000, true, 'nobody', 0, '', 100);
        PERFORM release(ns, name, 'd', 100);
        RAISE SQLSTATE 'LS002';
    EXCEPTION
        WHEN SQLSTATE 'LS002' THEN PERFORM commit_as(lax => true);
    END;
END $$;

CREATE OR REPLACE FUNCTION schema_version() RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT max(version) FROM meta
$$;
