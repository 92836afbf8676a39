-- Makes version 1 of lessor's schema.
BEGIN;
CREATE SCHEMA "lessor";
SET LOCAL search_path = "lessor", pg_temp;

-- Version 1: the tables. Times are microseconds of the server's wall clock since 1970; '' stands for nobody and nothing.
-- No index is on a column that a grant or renewal changes, and pages have room, so that an update stays in its page (HOT).

CREATE TABLE meta (version integer NOT NULL);
INSERT INTO meta VALUES (0);

CREATE TABLE spaces (
    namespace     text COLLATE "C" PRIMARY KEY,
    floor         bigint NOT NULL DEFAULT 0,        -- no token up to this one is granted
    watched_until bigint NOT NULL DEFAULT 0,        -- events are told while somebody watches
    collected     text COLLATE "C" NOT NULL DEFAULT ''  -- the last look for dead entries ended here
) WITH (fillfactor = 50);

-- One row a resource, in the order of core/entry.py.
CREATE TABLE entries (
    namespace      text COLLATE "C" NOT NULL,
    resource       text COLLATE "C" NOT NULL,
    token          bigint  NOT NULL DEFAULT 0,      -- the highest ever granted, so it outlives the lease
    lease_id       text    NOT NULL DEFAULT '',
    holder         text    NOT NULL DEFAULT '',
    ttl            bigint  NOT NULL DEFAULT 0,      -- 0 under a parent: lasts as long as the parent does
    expiry         bigint  NOT NULL DEFAULT 0,
    granted        bigint  NOT NULL DEFAULT 0,
    renewed        bigint  NOT NULL DEFAULT 0,
    renewals       bigint  NOT NULL DEFAULT 0,
    metadata       text    NOT NULL DEFAULT '',
    notify         text    NOT NULL DEFAULT '',
    parent         text COLLATE "C" NOT NULL DEFAULT '',
    parent_token   bigint  NOT NULL DEFAULT 0,
    soft           bigint  NOT NULL DEFAULT 0,
    grace          bigint  NOT NULL DEFAULT 0,
    lock_delay     bigint  NOT NULL DEFAULT 0,
    hold_at_least  bigint  NOT NULL DEFAULT 0,
    ended          text    NOT NULL DEFAULT '',
    revoked        boolean NOT NULL DEFAULT false,
    children       boolean NOT NULL DEFAULT false,
    waiting        boolean NOT NULL DEFAULT false,  -- there may be waiters, tombstones, a reservation
    reserved_until bigint,
    reserved_id    text    NOT NULL DEFAULT '',     -- for this waiter
    reserved_for   text    NOT NULL DEFAULT '',     -- or for a holder of this name
    PRIMARY KEY (namespace, resource)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX entries_parent ON entries (namespace, parent) WHERE parent <> '';

-- The queues. Whoever changes one has locked its entry.
CREATE TABLE waiters (
    namespace text COLLATE "C" NOT NULL,
    resource  text COLLATE "C" NOT NULL,
    place     bigint  GENERATED ALWAYS AS IDENTITY,
    lease_id  text    NOT NULL,
    holder    text    NOT NULL,
    notify    text    NOT NULL,
    since     bigint  NOT NULL,
    expiry    bigint  NOT NULL,
    passed    boolean NOT NULL DEFAULT false,       -- did not come when it was its turn
    PRIMARY KEY (namespace, resource, place)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);

-- Lease ids that must never be granted, and until when that is remembered.
CREATE TABLE tombstones (
    namespace  text COLLATE "C" NOT NULL,
    resource   text COLLATE "C" NOT NULL,
    lease_id   text   NOT NULL,
    kept_until bigint NOT NULL,
    PRIMARY KEY (namespace, resource, lease_id)
);

-- An operation as clients send it. A: acquire, N: renew, L: release, V: revoke.
CREATE TYPE operation AS (
    kind          text,
    resource      text,
    lease_id      text,
    holder        text,     -- A: who asks; L: whom it is kept for
    ttl           bigint,
    token         bigint,   -- A: the highest seen; N: ours; V: only this one
    flag          boolean,  -- A: queue up; L: abandon; V: by force
    notify        text,
    metadata      text,
    parent        text,
    parent_token  bigint,
    soft          bigint,
    grace         bigint,
    lock_delay    bigint,
    hold_at_least bigint
);

-- A word to one client or, with no address, to all who watch. The id is that of the lease that it is about.
CREATE TYPE word AS (address text, lease_id text, body text);

-- What an operation came to. Words said earlier in the batch about the id in `unsaid` are taken back.
CREATE TYPE reply AS (answer text, said word[], unsaid text);

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
           reserved_id = e.reserved_id, reserved_for = e.reserved_for
     WHERE t.namespace = e.namespace AND t.resource = e.resource;
END $$;

-- Keep the resource for this waiter, until 100 ms after the start of its turn, or with no waiter for nobody.
CREATE OR REPLACE FUNCTION reserve(e entries, id text, start bigint) RETURNS entries LANGUAGE plpgsql AS $$
BEGIN
    e.reserved_until := start + 100000;
    e.reserved_id := coalesce(id, '');
    e.reserved_for := '';
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

-- Where nobody has the free resource reserved, reserve it for the first live waiter.
CREATE OR REPLACE FUNCTION call_next(e entries, now bigint) RETURNS entries LANGUAGE plpgsql AS $$
DECLARE
    first text;
BEGIN
    IF e.waiting AND coalesce(e.reserved_until, 0) <= now THEN
        SELECT lease_id INTO first FROM waiters w
         WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.expiry > now AND NOT w.passed
         ORDER BY place LIMIT 1;
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
        start := least(e.reserved_until, now);
        IF e.reserved_id <> showing THEN
            UPDATE waiters p SET passed = true
             WHERE p.namespace = e.namespace AND p.resource = e.resource AND p.lease_id = e.reserved_id;
        END IF;
        e := reserve(e, NULL, NULL);
    END IF;
    FOR w IN SELECT * FROM waiters p WHERE p.namespace = e.namespace AND p.resource = e.resource ORDER BY place LOOP
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

-- The call to whoever has it reserved since, if somebody has.
CREATE OR REPLACE FUNCTION call_of(before entries, e entries) RETURNS word[] LANGUAGE plpgsql AS $$
DECLARE
    address text;
BEGIN
    IF e.reserved_id = '' OR (e.reserved_id = before.reserved_id AND e.reserved_until = before.reserved_until) THEN
        RETURN NULL;
    END IF;
    SELECT notify INTO address FROM waiters w
     WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.lease_id = e.reserved_id AND w.notify <> '';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY[ROW(address, e.reserved_id, json_build_array('reserved', e.resource, e.reserved_id))::word];
END $$;

-- Answer that it can't be had yet and, if asked to, keep or refresh the asker's place.
CREATE OR REPLACE FUNCTION wait(e entries, o operation, now bigint, by text, free_at bigint, said word[]) RETURNS reply
LANGUAGE plpgsql AS $$
DECLARE
    mine bigint;
    ahead bigint := 0;
BEGIN
    IF o.flag THEN
        e := tidy(e, now);
        UPDATE waiters w SET expiry = now + 6000000, passed = false
         WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.lease_id = o.lease_id
        RETURNING place INTO mine;
        IF NOT FOUND THEN
            INSERT INTO waiters (namespace, resource, lease_id, holder, notify, since, expiry)
            VALUES (e.namespace, e.resource, o.lease_id, o.holder, o.notify, now, now + 6000000)
            RETURNING place INTO mine;
        END IF;
        SELECT count(*) INTO ahead FROM waiters w
         WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.place < mine;
    ELSIF e.waiting THEN
        SELECT count(*) INTO ahead FROM waiters w
         WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.expiry > now;
    END IF;
    IF by = '' THEN
        ahead := greatest(ahead, 1);  -- behind the one that it is reserved for
    END IF;
    IF by = '' OR (o.flag AND NOT e.waiting) THEN
        -- Whose turn it is, or the next one to ask might find it otherwise.
        UPDATE entries t
           SET waiting = true, reserved_until = e.reserved_until, reserved_id = e.reserved_id, reserved_for = e.reserved_for
         WHERE t.namespace = e.namespace AND t.resource = e.resource;
    END IF;
    RETURN ROW(json_build_array(2, by, e.token, free_at - now, ahead), said, NULL)::reply;
END $$;

-- What each operation does to a resource. What core/rules.py means, tested against it; where that changes, this does.
-- The caller has locked the entry, its children where they may end with it, and the parent that an acquire names.

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

CREATE OR REPLACE FUNCTION event(kind text, e entries, now bigint, ttl bigint) RETURNS word LANGUAGE sql AS $$
    SELECT ROW('', '', json_build_array(kind, e.resource, e.token, e.holder, now, ttl))::word
$$;

CREATE OR REPLACE FUNCTION answer(VARIADIC parts text[]) RETURNS reply LANGUAGE sql AS $$
    SELECT ROW('[' || array_to_string(parts, ',') || ']', NULL, NULL)::reply
$$;

-- End a live lease, and in the same step whatever stands under it.
CREATE OR REPLACE FUNCTION finish(e entries, now bigint, kind text, free_at bigint, successor text, watched boolean)
RETURNS word[] LANGUAGE plpgsql AS $$
DECLARE
    before entries := e;
    child entries;
    said word[];
BEGIN
    IF e.children THEN
        FOR child IN
            SELECT * FROM entries c
             WHERE c.namespace = e.namespace AND c.parent = e.resource AND c.parent_token = e.token AND c.lease_id <> ''
             ORDER BY c.resource
        LOOP
            said := said || finish(child, now, kind, now, '', watched);
        END LOOP;
    END IF;
    e.expiry := free_at;
    IF successor <> '' THEN
        e := reserve(e, NULL, free_at);
        e.reserved_for := successor;
        e.waiting := true;
    ELSIF e.waiting THEN
        e := call_next(e, now);
        said := said || call_of(before, e);
    END IF;
    UPDATE entries t
       SET lease_id = '', expiry = free_at, ended = kind, children = false, notify = '', waiting = e.waiting,
           reserved_until = e.reserved_until, reserved_id = e.reserved_id, reserved_for = e.reserved_for
     WHERE t.namespace = e.namespace AND t.resource = e.resource;
    IF watched THEN
        said := said || event(kind, e, now, 0);
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
    e entries, o operation, now bigint, floor bigint, ended bigint, said word[], watched boolean
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
           SET expiry = CASE WHEN c.ttl = 0 THEN ended ELSE least(c.expiry, ended) END,
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
           reserved_until = NULL, reserved_id = '', reserved_for = ''
     WHERE t.namespace = e.namespace AND t.resource = e.resource;
    IF watched THEN
        e.token := minted;
        e.holder := o.holder;
        said := said || event('granted', e, now, ends - now);
    END IF;
    RETURN ROW('[1,' || minted || ',' || ends - now || ']', said, NULL)::reply;
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
    free_at := expiry;
    IF e.lease_id <> '' THEN
        IF now < expiry THEN
            IF e.lease_id = o.lease_id THEN
                RETURN answer('1', e.token::text, (expiry - now)::text);
            END IF;
            RETURN wait(e, o, now, e.holder, expiry, NULL);
        END IF;
        IF e.lease_id = o.lease_id THEN
            -- Its own grant has run out: a request that was that late must not start a second turn by itself.
            RETURN answer('4', '"expired"', '0');
        END IF;
        free_at := expiry + e.lock_delay;
    END IF;
    IF now < free_at THEN
        RETURN wait(e, o, now, e.holder, free_at, NULL);
    END IF;
    IF e.waiting THEN
        e := settle(e, free_at, now, o.lease_id);
        said := call_of(before, e);
        IF e.reserved_until IS NOT NULL AND (
            CASE WHEN e.reserved_for <> '' THEN e.reserved_for <> o.holder ELSE e.reserved_id <> o.lease_id END
        ) THEN
            RETURN wait(e, o, now, '', now, said);
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
        INSERT INTO tombstones AS t VALUES (e.namespace, e.resource, o.lease_id, now + 60000000)
            ON CONFLICT (namespace, resource, lease_id) DO UPDATE SET kept_until = excluded.kept_until;
        e.waiting := true;
        e := tidy(e, now);
    END IF;
    IF e.lease_id = o.lease_id AND now < expiry THEN
        free_at := CASE WHEN e.hold_at_least = 0 THEN now ELSE greatest(now, e.granted + e.hold_at_least) END;
        said := finish(e, now, 'released', free_at, o.holder, watched);
        RETURN ROW(format('[5,%s]', free_at - now), said, NULL)::reply;
    END IF;
    IF e.waiting AND EXISTS (
        SELECT FROM waiters w WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.lease_id = o.lease_id
    ) THEN
        free_at := CASE WHEN e.lease_id = '' THEN expiry ELSE expiry + e.lock_delay END;
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
        END IF;
        said := call_of(before, e);
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

CREATE OR REPLACE FUNCTION revoke_one(e entries, o operation, now bigint, watched boolean) RETURNS reply
LANGUAGE plpgsql AS $$
DECLARE
    expiry bigint := holds_until(e);
    said word[];
BEGIN
    IF e.lease_id = '' OR now >= expiry OR o.token <> e.token THEN
        RETURN answer('6', '"not held"');
    END IF;
    IF e.notify <> '' THEN
        said := ARRAY[ROW(e.notify, e.lease_id, json_build_array('revoked', e.resource, e.lease_id))::word];
    END IF;
    IF o.flag THEN
        said := said || finish(e, now, 'revoked', now, '', watched);
        RETURN ROW('[5,0]', said, NULL)::reply;
    END IF;
    e.revoked := true;
    IF e.ttl = 0 THEN
        -- It would last as long as its parent goes on; from here on it has the time that was promised, and no more.
        e.ttl := expiry - now;
        e.expiry := expiry;
    END IF;
    PERFORM save(e);
    IF watched THEN
        said := said || event('revoked', e, now, expiry - now);
    END IF;
    RETURN ROW(format('[5,%s]', expiry - now), said, NULL)::reply;
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

-- Carries out a batch in one transaction: locks, then the time, then the decisions.
--
-- Answers are JSON, one for each operation: [1,token,ttl] granted, [2,by,token,remaining,position] held, [3,ttl] renewed,
-- [4,reason,remaining] lost, [5,free_in] released, [6,reason] not held, [7,why,detail] refused, [8] locked by somebody.

-- Whatever the session's default: a grant or renewal that a crash takes back would let two hold it. A release may be lost.
CREATE OR REPLACE FUNCTION commit_as(lax boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF lax THEN
        PERFORM set_config('synchronous_commit', 'off', true);
    ELSIF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
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
               AND e.expiry > now AND e.parent = '' AND e.hold_at_least = 0 AND NOT e.waiting AND NOT e.children
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
        said := ARRAY(SELECT u FROM unnest(said) u ORDER BY u.address);  -- which keeps the order of those for one address
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
    renewing text[];
    needed text[];    -- all to be locked, renewals apart
    locked text[];
    busy text[];
    family boolean;
    waits boolean := true;
BEGIN
    PERFORM set_config('lock_timeout', patience::text, true);
    IF cardinality(ops) = 1 AND ops[1].parent = '' AND ops[1].kind <> 'N' THEN
        ending := ARRAY[ops[1].resource];
        fresh := CASE WHEN ops[1].kind = 'A' OR (ops[1].kind = 'L' AND ops[1].flag) THEN ending ELSE '{}' END;
        above := '{}';
        renewing := '{}';
    ELSE
        SELECT coalesce(array_agg(DISTINCT resource) FILTER (WHERE kind = 'A' OR (kind = 'L' AND flag)), '{}'),
               coalesce(array_agg(DISTINCT resource) FILTER (WHERE kind <> 'N'), '{}'),
               coalesce(array_agg(DISTINCT parent) FILTER (WHERE parent <> ''), '{}'),
               coalesce(array_agg(DISTINCT resource) FILTER (WHERE kind = 'N'), '{}')
          INTO fresh, ending, above, renewing FROM unnest(ops);
    END IF;
    needed := ending || above;
    FOR attempt IN 1..100 LOOP
        busy := '{}';
        BEGIN
            IF inserts THEN
                INSERT INTO entries (namespace, resource) SELECT ns, name FROM unnest(fresh) name ORDER BY name COLLATE "C"
                    ON CONFLICT DO NOTHING;
            END IF;
            IF waits THEN
                SELECT coalesce(array_agg(e.resource), '{}'), bool_or(e.children) INTO locked, family
                  FROM (SELECT name FROM unnest(needed) name ORDER BY name COLLATE "C") n, LATERAL (
                    SELECT * FROM entries x WHERE x.namespace = ns AND x.resource = name FOR UPDATE) e;
            ELSE
                SELECT coalesce(array_agg(e.resource), '{}'), bool_or(e.children) INTO locked, family
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
            IF cardinality(locked) < cardinality(needed) + cardinality(renewing) THEN
                busy := ARRAY(
                    SELECT e.resource FROM unnest(needed || renewing) name, LATERAL (
                        SELECT * FROM entries x WHERE x.namespace = ns AND x.resource = name OFFSET 0) e
                    EXCEPT SELECT unnest(locked));
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
        RETURN run(
            ns, ARRAY[o], patience,
            inserts => o.kind = 'A' AND NOT EXISTS (SELECT FROM entries x WHERE x.namespace = ns AND x.resource = o.resource));
    END IF;
    r := decide(e, o, now, space.floor, space.watched_until > now);
    IF r.said IS NOT NULL THEN
        PERFORM deliver(ns, r.said);
    END IF;
    RETURN '[' || r.answer || ']';
END $$;

-- What a client sends: fields that an operation lacks are nothing.
CREATE OR REPLACE FUNCTION parsed(batch json) RETURNS operation[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT ROW(
            kind, resource, coalesce(lease_id, ''), coalesce(holder, ''), coalesce(ttl, 0), token,
            coalesce(flag, false), coalesce(notify, ''), coalesce(metadata, ''), coalesce(parent, ''),
            coalesce(parent_token, 0), coalesce(soft, 0), coalesce(grace, 0), coalesce(lock_delay, 0),
            coalesce(hold_at_least, 0)
        )::operation
          FROM json_populate_recordset(NULL::operation, batch));
END $$;

-- In a transaction of its own.
CREATE OR REPLACE FUNCTION apply(ns text, batch json, patience integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    ops operation[] := parsed(batch);
BEGIN
    PERFORM commit_as(lax => (SELECT bool_and(kind = 'L' AND NOT flag) FROM unnest(ops)));
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

-- A lone acquire or release that nobody disputes, in one statement. Whatever isn't so simple goes to the rules, unchanged.
--
-- The time is read before the row is locked, and may be older than the lock. That errs on the safe side: an entry that
-- changed while we waited is looked at again (and is then free later than our time, so not free), the token is above the
-- entry's own in any case, and no holder counts its lease from later than its request. The floor is of the same moment
-- as the entry: whoever raises it for this resource deletes the entry, and then this finds none.

-- The resource is free and nobody waits for it; or it is kept for the one that asks, who then leaves the queue.
CREATE OR REPLACE FUNCTION acquire(
    ns text, name text, id text, who text, life bigint, queued boolean, address text, seen bigint, about text,
    patience integer
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    now bigint := clock_us();
    minted bigint;
    waited boolean;
BEGIN
    PERFORM commit_as(lax => false), set_config('lock_timeout', patience::text, true);
    UPDATE entries e
       SET token = greatest(greatest(e.token, s.floor, seen) + 1, now), lease_id = id, holder = who, ttl = life,
           expiry = now + life, granted = now, renewed = now, renewals = 0, metadata = about, notify = address,
           parent = '', parent_token = 0, soft = 0, grace = 0, lock_delay = 0, hold_at_least = 0, ended = '',
           revoked = false, reserved_until = NULL, reserved_id = '', reserved_for = ''
      FROM spaces s
     WHERE s.namespace = ns AND s.watched_until <= now AND e.namespace = ns AND e.resource = name
       AND e.lease_id = '' AND e.expiry <= now AND NOT e.children
       AND (NOT e.waiting OR (e.reserved_id = id AND e.reserved_until > now AND EXISTS (
            SELECT FROM waiters w WHERE w.namespace = ns AND w.resource = name AND w.lease_id = id)))
       AND greatest(e.token, s.floor, seen) < 9007199254740991 AND now < 9007199254740992
    RETURNING e.token, e.waiting INTO minted, waited;
    IF NOT FOUND THEN
        RETURN run_alone(
            ns, ROW('A', name, id, who, life, seen, queued, address, about, '', 0, 0, 0, 0, 0)::operation, patience);
    END IF;
    IF waited THEN
        DELETE FROM waiters w
         WHERE w.namespace = ns AND w.resource = name AND (w.lease_id = id OR w.expiry <= now);
        IF NOT EXISTS (SELECT FROM waiters w WHERE w.namespace = ns AND w.resource = name)
            AND NOT EXISTS (SELECT FROM tombstones t WHERE t.namespace = ns AND t.resource = name)
        THEN
            UPDATE entries e SET waiting = false WHERE e.namespace = ns AND e.resource = name;
        END IF;
    END IF;
    RETURN '[[1,' || minted || ',' || life || ']]';
END $$;

CREATE OR REPLACE FUNCTION release(ns text, name text, id text, patience integer) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    now bigint := clock_us();
BEGIN
    PERFORM commit_as(lax => true), set_config('lock_timeout', patience::text, true);
    UPDATE entries e
       SET lease_id = '', expiry = now, ended = 'released', notify = ''
      FROM spaces s
     WHERE s.namespace = ns AND s.watched_until <= now AND e.namespace = ns AND e.resource = name
       AND e.lease_id = id AND e.expiry > now AND e.parent = '' AND e.hold_at_least = 0 AND NOT e.waiting
       AND NOT e.children;
    IF FOUND THEN
        RETURN '[[5,0]]';
    END IF;
    RETURN run_alone(
        ns, ROW('L', name, id, '', 0, NULL, false, '', '', '', 0, 0, 0, 0, 0)::operation, patience);
END $$;

-- Who holds what: for clients as JSON, and for people as a view. The lease id, which is its secret, is in neither.

-- The entry as a record in the order of core/lease.py; NULL: nobody holds it.
CREATE OR REPLACE FUNCTION shown(e entries, now bigint) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
    expiry bigint := holds_until(e);
    line json := '[]';
    reserved text;
BEGIN
    IF e.lease_id = '' OR now >= expiry THEN
        RETURN NULL;
    END IF;
    IF e.waiting THEN
        SELECT coalesce(json_agg(json_build_array(w.holder, w.since) ORDER BY place), '[]'),
               max(w.holder) FILTER (WHERE w.lease_id = e.reserved_id)
          INTO line, reserved
          FROM waiters w WHERE w.namespace = e.namespace AND w.resource = e.resource AND w.expiry > now;
        reserved := CASE WHEN e.reserved_until > now THEN coalesce(nullif(e.reserved_for, ''), reserved) END;
    END IF;
    RETURN json_build_array(
        e.resource, e.holder, e.token, e.ttl, expiry - now, e.granted, e.renewed, e.renewals, e.metadata, e.parent,
        e.parent_token, e.soft, e.grace, e.lock_delay, e.hold_at_least, e.revoked, reserved, line);
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

CREATE OR REPLACE FUNCTION schema_version() RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT max(version) FROM meta
$$;

-- What clients call. Whoever may use the schema may call these and see the view, and nothing else: they are run with the
-- rights of their owner, and the tables, which have the lease ids, are for the owner alone.
DO $$
DECLARE
    called regprocedure[] := ARRAY[
        'apply(text, json, integer)', 'apply_within(text, json, integer)', 'release(text, text, text, integer)',
        'acquire(text, text, text, text, bigint, boolean, text, bigint, text, integer)', 'read(text, json)',
        'scan(text, text, text, integer)', 'watch(text, integer)', 'collect(text, integer, integer)'];
    seen regprocedure[] := ARRAY['schema_version()', 'leases_now()'];
    one regprocedure;
BEGIN
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM PUBLIC', current_schema());
    FOREACH one IN ARRAY called || seen LOOP
        EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER SET search_path FROM CURRENT', one);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', one);
    END LOOP;
    -- A connection keeps its plans, and some of them were made when the tables were as good as empty. These always are
    -- about a few rows by their keys, however many there are.
    FOREACH one IN ARRAY called LOOP
        EXECUTE format(
            'ALTER FUNCTION %s SET plan_cache_mode = force_generic_plan SET enable_seqscan = off '
            'SET enable_hashjoin = off SET enable_mergejoin = off', one);
    END LOOP;
END $$;
GRANT SELECT ON leases TO PUBLIC;

UPDATE meta SET version = 1;
COMMIT;
