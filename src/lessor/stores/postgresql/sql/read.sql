-- Who holds what, and what is closed: for clients as JSON, and for people as a view. The lease id, which is its secret, is in neither.

-- Who waits, in the order of their turns: name, since when and, where it has one, the priority.
CREATE OR REPLACE FUNCTION queue_of(ns text, name text, now bigint) RETURNS json LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT coalesce(json_agg(
            CASE WHEN w.priority = 0 THEN json_build_array(w.holder, w.since)
            ELSE json_build_array(w.holder, w.since, w.priority) END ORDER BY w.priority DESC, w.place), '[]')
          FROM waiters w WHERE w.namespace = ns AND w.resource = name AND w.expiry > now);
END $$;

-- The entry as a record in the order of core/lease.py; NULL: it is free.
CREATE OR REPLACE FUNCTION shown(e entries, now bigint) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
    expiry bigint := holds_until(e);
    line json := '[]';
    reserved text;
    closed text := '';
BEGIN
    IF e.lease_id = '' OR now >= expiry THEN
        expiry := free_from(e, expiry);
        IF now >= expiry THEN
            RETURN NULL;
        END IF;
        -- Of a lease that is over, what only mattered while it was held is left out.
        closed := closed_by(e);
        e.metadata := '';
        e.parent := '';
        e.soft := 0;
        e.grace := 0;
        e.revoked := false;
    END IF;
    IF e.waiting THEN
        line := queue_of(e.namespace, e.resource, now);
        SELECT w.holder INTO reserved FROM waiters w
         WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.expiry > now AND w.lease_id = e.reserved_id;
        reserved := CASE WHEN e.reserved_until > now THEN coalesce(nullif(e.reserved_for, ''), reserved) END;
    END IF;
    RETURN json_build_array(
        e.resource, e.holder, e.token, e.ttl, expiry - now, e.granted, e.renewed, e.renewals, e.metadata, e.parent,
        e.parent_token, e.soft, e.grace, e.lock_delay, e.hold_at_least, e.revoked, reserved, closed, line);
END $$;

CREATE OR REPLACE FUNCTION read(ns text, names json) RETURNS json
LANGUAGE plpgsql STABLE AS $$
DECLARE
    now bigint := clock_us();
BEGIN
    RETURN (
        SELECT json_agg((SELECT shown(e, now) FROM entries e WHERE e.namespace = ns AND e.resource = name) ORDER BY n)
          FROM json_array_elements_text(names) WITH ORDINALITY wanted(name, n));
END $$;

CREATE OR REPLACE FUNCTION contenders(ns text, name text) RETURNS json
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN queue_of(ns, name, clock_us());
END $$;

-- Up to so many entries after a name, and the name to go on after: NULL at the end.
CREATE OR REPLACE FUNCTION scan(ns text, prefix text, after text, most integer) RETURNS json
LANGUAGE plpgsql STABLE AS $$
DECLARE
    now bigint := clock_us();
BEGIN
    RETURN (
        SELECT json_build_array(
            CASE WHEN count(*) = most THEN max(resource) END,
            coalesce(json_agg(record ORDER BY resource) FILTER (WHERE record IS NOT NULL), '[]'))
          FROM (
            SELECT e.resource, shown(e, now) AS record FROM entries e
             WHERE e.namespace = ns AND e.resource >= prefix AND e.resource > after
               AND e.resource <= prefix || repeat(chr(1114111), 128) AND starts_with(e.resource, prefix)
             ORDER BY e.resource LIMIT most
          ) page);
END $$;

CREATE OR REPLACE FUNCTION leases_now()
RETURNS TABLE (
    namespace text, resource text, holder text, token bigint, expires timestamptz, granted timestamptz,
    renewed timestamptz, renewals bigint, ttl_seconds double precision, revoked boolean, parent text, metadata text,
    waiting bigint
) LANGUAGE sql STABLE AS $$
    SELECT e.namespace, e.resource, e.holder, e.token, to_timestamp(until / 1e6), to_timestamp(e.granted / 1e6),
           to_timestamp(e.renewed / 1e6), e.renewals, e.ttl / 1e6, e.revoked, nullif(e.parent, ''),
           nullif(e.metadata, ''), (
               SELECT count(*) FROM waiters w
                WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.expiry > now)
      FROM entries e, holds_until(e) until, clock_us() now
     WHERE e.lease_id <> '' AND until > now
     ORDER BY 1, 2
$$;

CREATE OR REPLACE VIEW leases AS SELECT * FROM leases_now();
