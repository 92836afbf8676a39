-- Carries out a batch in one transaction: locks, then the time, then the decisions.
--
-- Answers are JSON, one for each operation: [1,token,ttl] granted, [2,by,token,remaining,position] held, [3,ttl] renewed,
-- [4,reason,remaining] lost, [5,free_in] released, [6,reason] not held, [7,why,detail] refused, [8] locked by somebody.
-- Where there is more to say: [1,token,ttl,state], [2,by,token,remaining,position,refused], [3,ttl,ended]; where it is
-- closed: [2,by,token,remaining,position,refused,closed].

-- Whatever the session's default: a grant or renewal that a crash takes back would let two hold it. A release may be lost.
-- That a wait for a synchronous standby was cancelled is told by a warning alone, so the client has to get it.
CREATE OR REPLACE FUNCTION commit_as(lax boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF lax THEN
        PERFORM set_config('synchronous_commit', 'off', true);
        RETURN;
    END IF;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF current_setting('client_min_messages') = 'error' THEN
        PERFORM set_config('client_min_messages', 'warning', true);
    END IF;
END $$;

-- The answer to a lone operation. Where it is that somebody else has it, nothing is worth the wait for the disk, during
-- which the one whose turn it is would wait for the row: a place in a queue that a crash takes back is asked for again.
CREATE OR REPLACE FUNCTION settled(answers text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF answers LIKE '[[2,%' THEN
        PERFORM commit_as(lax => true);
    END IF;
    RETURN answers;
END $$;

-- Those under these, at any depth.
CREATE OR REPLACE FUNCTION family_of(ns text, names text[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE family(resource, token) AS (
            SELECT e.resource, e.token FROM unnest(names) name, LATERAL (
                SELECT * FROM entries x WHERE x.namespace = ns AND x.resource = name AND x.children OFFSET 0) e
            UNION
            SELECT c.resource, c.token FROM family f, LATERAL (
                SELECT * FROM entries x
                 WHERE x.namespace = ns AND x.parent = f.resource AND x.parent <> '' AND x.parent_token = f.token
                   AND x.lease_id <> '' OFFSET 0) c
        )
        SELECT resource FROM family);
END $$;

-- Those above these, at any level.
CREATE OR REPLACE FUNCTION ancestors_of(ns text, names text[]) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        WITH RECURSIVE above(resource) AS (
            SELECT e.parent FROM unnest(names) name, LATERAL (
                SELECT * FROM entries x WHERE x.namespace = ns AND x.resource = name AND x.lease_id <> '' OFFSET 0) e
            UNION
            SELECT e.parent FROM above a, LATERAL (
                SELECT * FROM entries x WHERE x.namespace = ns AND x.resource = a.resource AND x.lease_id <> '' OFFSET 0) e
        )
        SELECT resource FROM above WHERE resource <> '');
END $$;

-- Whether it may end somebody else's lease, which is told to all above that.
CREATE OR REPLACE FUNCTION ends_anothers(o operation) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT (o).kind = 'V' OR (o).recover
$$;

-- The undisputed cases of rules.sql all at once, while nobody watches: no waiter, no parent, no child, and each operation
-- the only one for its resource. Returns the answers where there are any. The rows are locked, so they stay where they
-- are; and found by key, one by one, because the planner might think that the other way round is quicker.
CREATE OR REPLACE FUNCTION decide_plain(ns text, ops operation[], now bigint, floor bigint) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    answers text[] := array_fill(NULL::text, ARRAY[cardinality(ops)]);
    grants boolean;
    renewals boolean;
    releases boolean;
    done record;
BEGIN
    SELECT bool_or(kind = 'A'), bool_or(kind = 'N'), bool_or(kind = 'L') INTO grants, renewals, releases FROM unnest(ops);
    IF grants THEN
        FOR done IN
            UPDATE entries e
               SET token = greatest(greatest(e.token, floor, o.token) + 1, now), lease_id = o.lease_id,
                   holder = o.holder, ttl = o.ttl, expiry = now + o.ttl, granted = now, renewed = now, renewals = 0,
                   metadata = o.metadata, notify = o.notify, parent = '', parent_token = 0, soft = o.soft,
                   grace = o.grace, lock_delay = o.lock_delay, hold_at_least = o.hold_at_least, ended = '',
                   revoked = false
              FROM unnest(ops) WITH ORDINALITY o, LATERAL (
                SELECT x.ctid AS at FROM entries x WHERE x.namespace = ns AND x.resource = o.resource OFFSET 0) x
             WHERE o.kind = 'A' AND e.ctid = x.at AND e.lease_id = '' AND e.expiry <= now AND NOT e.waiting AND NOT e.children
               AND greatest(e.token, floor, o.token) < 9007199254740991 AND now < 9007199254740992
            RETURNING o.ordinality AS n, e.token, o.ttl
        LOOP
            answers[done.n] := '[1,' || done.token || ',' || done.ttl || ']';
        END LOOP;
    END IF;
    IF renewals THEN
        FOR done IN
            UPDATE entries e
               SET expiry = greatest(e.expiry, now + o.ttl), ttl = greatest(e.ttl, o.ttl), renewed = now,
                   renewals = e.renewals + 1
              FROM unnest(ops) WITH ORDINALITY o, LATERAL (
                SELECT x.ctid AS at FROM entries x WHERE x.namespace = ns AND x.resource = o.resource OFFSET 0) x
             WHERE o.kind = 'N' AND e.ctid = x.at AND e.lease_id = o.lease_id AND e.expiry > now AND NOT e.revoked
               AND e.parent = '' AND NOT e.children
            RETURNING o.ordinality AS n, e.expiry - now AS ttl
        LOOP
            answers[done.n] := '[3,' || done.ttl || ']';
        END LOOP;
    END IF;
    IF releases THEN
        FOR done IN
            UPDATE entries e
               SET lease_id = '', expiry = now, ended = 'released', notify = ''
              FROM unnest(ops) WITH ORDINALITY o, LATERAL (
                SELECT x.ctid AS at FROM entries x WHERE x.namespace = ns AND x.resource = o.resource OFFSET 0) x
             WHERE o.kind = 'L' AND NOT o.flag AND o.holder = '' AND e.ctid = x.at AND e.lease_id = o.lease_id
               AND e.expiry > now AND e.parent = '' AND e.hold_at_least = 0 AND e.state = '' AND NOT e.waiting
               AND NOT e.children
            RETURNING o.ordinality AS n
        LOOP
            answers[done.n] := '[5,0]';
        END LOOP;
    END IF;
    RETURN answers;
END $$;

CREATE OR REPLACE FUNCTION tell(ns text, address text, payload text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF payload IS NOT NULL THEN
        PERFORM pg_notify(
            'lessor:' || CASE WHEN address = '' THEN md5(current_schema() || '.' || ns) ELSE address END,
            '[' || payload || ']');
    END IF;
END $$;

-- Tell those concerned, once this commits. A notification takes less than 8,000 bytes.
CREATE OR REPLACE FUNCTION deliver(ns text, said word[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    w word;
    channel text;
    payload text;
BEGIN
    IF cardinality(said) = 1 THEN
        PERFORM tell(ns, said[1].address, said[1].body);
        RETURN;
    ELSE
        said := ARRAY(
            SELECT ROW(u.address, u.lease_id, u.body)::word
            FROM unnest(said) WITH ORDINALITY AS u(address, lease_id, body, place)
            ORDER BY u.address, u.place);
    END IF;
    FOREACH w IN ARRAY said LOOP
        IF channel = w.address AND octet_length(payload) + octet_length(w.body) < 7900 THEN
            payload := payload || ',' || w.body;
        ELSE
            PERFORM tell(ns, channel, payload);
            channel := w.address;
            payload := w.body;
        END IF;
    END LOOP;
    PERFORM tell(ns, channel, payload);
END $$;

-- Decide on the batch, under its locks. All apart: no operation has to do with another's resource.
CREATE OR REPLACE FUNCTION decide_all(ns text, ops operation[], busy text[], all_apart boolean) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    space spaces;
    now bigint;
    watched boolean;
    o operation;
    entry entries;
    r reply;
    answers text[];
    said word[];
BEGIN
    now := clock_us();
    IF current_setting('transaction_isolation') = 'read committed' THEN
        SELECT * INTO space FROM spaces s WHERE s.namespace = ns;
    ELSE
        -- A snapshot from before may show a floor that is too low: then this fails, and the transaction is to be repeated.
        SELECT * INTO space FROM spaces s WHERE s.namespace = ns FOR SHARE;
    END IF;
    IF NOT FOUND THEN
        INSERT INTO spaces (namespace) VALUES (ns) ON CONFLICT DO NOTHING;
        SELECT * INTO space FROM spaces s WHERE s.namespace = ns;
    END IF;
    watched := space.watched_until > now;

    IF all_apart AND NOT watched THEN
        answers := decide_plain(ns, ops, now, space.floor);
    ELSE
        answers := array_fill(NULL::text, ARRAY[cardinality(ops)]);
    END IF;
    FOR n IN 1..cardinality(ops) LOOP
        CONTINUE WHEN answers[n] IS NOT NULL;
        o := ops[n];
        IF busy <> '{}' AND (
            ARRAY[o.resource, o.parent] && busy OR (o.kind <> 'N' AND family_of(ns, ARRAY[o.resource]) && busy)
            OR (ends_anothers(o) AND ancestors_of(ns, ARRAY[o.resource]) && busy)
        ) THEN
            answers[n] := '[8]';
            CONTINUE;
        END IF;
        SELECT * INTO entry FROM entries x WHERE x.namespace = ns AND x.resource = o.resource;
        r := decide(entry, o, now, space.floor, watched);
        answers[n] := r.answer;
        IF r.unsaid IS NOT NULL THEN
            said := ARRAY(SELECT w FROM unnest(said) w WHERE w.lease_id <> r.unsaid);
        END IF;
        said := said || r.said;
    END LOOP;
    IF said IS NOT NULL THEN
        PERFORM deliver(ns, said);
    END IF;
    RETURN '[' || array_to_string(answers, ',') || ']';
END $$;

-- All locks are taken in the order of the names, and given back when more turn out to be needed: so no two batches can
-- wait for each other. Renewals wait for nobody, and come last. Where somebody's transaction is too long in the way, only
-- the operations that need its rows are answered so. The decisions are in the same subtransaction as the locks, or each
-- row would have two lockers, and the server would keep a list of them (a multixact).
CREATE OR REPLACE FUNCTION run(ns text, ops operation[], patience integer, inserts boolean DEFAULT false) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    fresh text[];     -- need a row
    ending text[];    -- may end with all that is under them
    above text[];     -- parents named
    ended text[];     -- may be ended by somebody else, which those above them count
    renewing text[];
    needed text[];    -- all to be locked, renewals apart
    locked text[];
    busy text[];
    coming text[];    -- somebody's transaction has made their rows, and not committed
    one text;
    family boolean;
    under boolean;    -- some of those locked have a parent
    waits boolean := true;
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true);
    IF cardinality(ops) = 1 AND ops[1].parent = '' AND ops[1].kind <> 'N' THEN
        ending := ARRAY[ops[1].resource];
        fresh := CASE WHEN ops[1].kind = 'A' OR (ops[1].kind = 'L' AND ops[1].flag) THEN ending ELSE '{}' END;
        above := '{}';
        ended := CASE WHEN ends_anothers(ops[1]) THEN ending ELSE '{}' END;
        renewing := '{}';
    ELSE
        SELECT coalesce(array_agg(DISTINCT resource) FILTER (WHERE kind = 'A' OR (kind = 'L' AND flag)), '{}'),
               coalesce(array_agg(DISTINCT resource) FILTER (WHERE kind <> 'N'), '{}'),
               coalesce(array_agg(DISTINCT parent) FILTER (WHERE parent <> ''), '{}'),
               coalesce(array_agg(DISTINCT resource) FILTER (WHERE kind = 'V' OR recover), '{}'),
               coalesce(array_agg(DISTINCT resource) FILTER (WHERE kind = 'N'), '{}')
          INTO fresh, ending, above, ended, renewing FROM unnest(ops);
    END IF;
    needed := ending || above;
    FOR attempt IN 1..100 LOOP
        busy := '{}';
        coming := '{}';
        BEGIN
            IF inserts AND NOT waits THEN
                PERFORM set_config('lock_timeout', '1', true);
                FOREACH one IN ARRAY fresh LOOP
                    BEGIN
                        INSERT INTO entries (namespace, resource) VALUES (ns, one) ON CONFLICT DO NOTHING;
                    EXCEPTION
                        WHEN lock_not_available THEN
                            coming := coming || one;
                    END;
                END LOOP;
                PERFORM set_config('lock_timeout', patience::text, true);
            ELSIF inserts THEN
                INSERT INTO entries (namespace, resource) SELECT ns, name FROM unnest(fresh) name ORDER BY name COLLATE "C"
                    ON CONFLICT DO NOTHING;
            END IF;
            IF waits THEN
                SELECT coalesce(array_agg(e.resource), '{}'), bool_or(e.children), bool_or(e.parent <> '')
                  INTO locked, family, under
                  FROM (SELECT name FROM unnest(needed) name ORDER BY name COLLATE "C") n, LATERAL (
                    SELECT * FROM entries x WHERE x.namespace = ns AND x.resource = name FOR UPDATE) e;
            ELSE
                SELECT coalesce(array_agg(e.resource), '{}'), bool_or(e.children), bool_or(e.parent <> '')
                  INTO locked, family, under
                  FROM unnest(needed) name, LATERAL (
                    SELECT * FROM entries x WHERE x.namespace = ns AND x.resource = name FOR UPDATE SKIP LOCKED) e;
            END IF;
            IF renewing <> '{}' THEN
                locked := locked || ARRAY(
                    SELECT e.resource FROM unnest(renewing) name, LATERAL (
                        SELECT * FROM entries x WHERE x.namespace = ns AND x.resource = name FOR UPDATE SKIP LOCKED) e);
            END IF;
            IF family THEN
                needed := needed || family_of(ns, ending);
            END IF;
            IF under AND ended <> '{}' THEN
                needed := needed || ancestors_of(ns, ended);
            END IF;
            IF cardinality(locked) < cardinality(needed) + cardinality(renewing) THEN
                busy := ARRAY(
                    SELECT e.resource FROM unnest(needed || renewing) name, LATERAL (
                        SELECT * FROM entries x WHERE x.namespace = ns AND x.resource = name OFFSET 0) e
                    EXCEPT SELECT unnest(locked)) || coming;
                inserts := NOT fresh <@ (locked || busy);
                -- A new name, a row that came or went meanwhile, or a child: begin again, with all that is known now.
                IF inserts OR (waits AND busy && needed) THEN
                    RAISE SQLSTATE 'LS001';
                END IF;
            END IF;
            RETURN decide_all(
                ns, ops, busy,
                all_apart => above = '{}' AND busy = '{}' AND cardinality(ops) > 1
                    AND cardinality(ending) + cardinality(renewing) = cardinality(ops) AND NOT ending && renewing);
        EXCEPTION
            WHEN lock_not_available THEN
                IF NOT waits THEN
                    RETURN '[' || array_to_string(array_fill('[8]'::text, ARRAY[cardinality(ops)]), ',') || ']';
                END IF;
                waits := false;
            WHEN SQLSTATE 'LS001' THEN
                IF attempt = 100 THEN
                    RAISE lock_not_available;
                END IF;
        END;
    END LOOP;
END $$;

-- One operation on a resource that has no parent and no children, and so needs no other's lock.
CREATE OR REPLACE FUNCTION run_alone(ns text, o operation, patience integer) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    e entries;
    space spaces;
    now bigint;
    r reply;
BEGIN
    SELECT * INTO e FROM entries x
     WHERE x.namespace = ns AND x.resource = o.resource AND NOT x.children AND x.parent = '' FOR UPDATE;
    IF FOUND THEN
        now := clock_us();
        SELECT * INTO space FROM spaces s WHERE s.namespace = ns;
    END IF;
    IF NOT FOUND THEN
        RETURN settled(run(
            ns, ARRAY[o], patience,
            inserts => o.kind = 'A' AND NOT EXISTS (SELECT FROM entries x WHERE x.namespace = ns AND x.resource = o.resource)));
    END IF;
    r := decide(e, o, now, space.floor, space.watched_until > now);
    IF r.said IS NOT NULL THEN
        PERFORM deliver(ns, r.said);
    END IF;
    RETURN settled('[' || r.answer || ']');
END $$;

-- What a client sends: fields that an operation lacks are nothing.
CREATE OR REPLACE FUNCTION parsed(batch json) RETURNS operation[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT ROW(
            kind, resource, coalesce(lease_id, ''), coalesce(holder, ''), coalesce(ttl, 0), token,
            coalesce(flag, false), coalesce(notify, ''), coalesce(metadata, ''), coalesce(parent, ''),
            coalesce(parent_token, 0), coalesce(soft, 0), coalesce(grace, 0), coalesce(lock_delay, 0),
            coalesce(hold_at_least, 0), coalesce(priority, 0), coalesce(queue_limit, 0), coalesce(recover, false)
        )::operation
          FROM json_populate_recordset(NULL::operation, batch));
END $$;

-- In a transaction of its own.
CREATE OR REPLACE FUNCTION apply(ns text, batch json, patience integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    ops operation[] := parsed(batch);
BEGIN
    PERFORM commit_as(lax => (SELECT bool_and(kind = 'L' AND NOT flag AND holder = '') FROM unnest(ops)));
    IF cardinality(ops) = 1 THEN
        RETURN settled(run(ns, ops, patience));
    END IF;
    RETURN run(ns, ops, patience);
END $$;

-- In a transaction of the caller's, which decides when, and whether, it is committed.
CREATE OR REPLACE FUNCTION apply_within(ns text, batch json, patience integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    usual text := current_setting('lock_timeout');
    answers text;
BEGIN
    PERFORM commit_as(lax => false);
    answers := run(ns, parsed(batch), patience);
    PERFORM set_config('lock_timeout', usual, true);
    RETURN answers;
END $$;
