-- Version 2: priorities, bounded queues, handover with something left for the successor, recovery, counted children.
-- Adding columns like these rewrites no table.

ALTER TABLE entries
    ADD state          text   NOT NULL DEFAULT '',  -- what the holder before has handed over to this one
    ADD children_ended bigint NOT NULL DEFAULT 0,   -- how many leases under this one, at any depth, somebody else ended
    ADD reserved_state text   NOT NULL DEFAULT '';  -- what goes to whom it is reserved for, with the grant

ALTER TABLE waiters ADD priority bigint NOT NULL DEFAULT 0;

-- Besides: of a release, `ttl` says for how long it is kept for the successor, and `metadata` what is left for that one.
ALTER TYPE operation
    ADD ATTRIBUTE priority bigint,
    ADD ATTRIBUTE queue_limit bigint,
    ADD ATTRIBUTE recover boolean;

-- These have other parameters now, or other names for them.
DROP FUNCTION IF EXISTS grant_it(entries, operation, bigint, bigint, bigint, word[], boolean);
DROP FUNCTION IF EXISTS finish(entries, bigint, text, bigint, text, boolean);
