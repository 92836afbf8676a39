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
