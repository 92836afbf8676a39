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
       AND (NOT e.waiting OR (e.reserved_id = id AND e.reserved_until > now AND e.reserved_state = '' AND EXISTS (
            SELECT FROM waiters w WHERE w.namespace = ns AND w.resource = name AND w.lease_id = id)))
       AND greatest(e.token, s.floor, seen) < 9007199254740991 AND now < 9007199254740992
    RETURNING e.token, e.waiting INTO minted, waited;
    IF NOT FOUND THEN
        RETURN run_alone(
            ns, ROW('A', name, id, who, life, seen, queued, address, about, '', 0, 0, 0, 0, 0, 0, 0, false)::operation,
            patience);
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
       AND e.lease_id = id AND e.expiry > now AND e.parent = '' AND e.hold_at_least = 0 AND e.state = ''
       AND NOT e.waiting AND NOT e.children;
    IF FOUND THEN
        RETURN '[[5,0]]';
    END IF;
    RETURN run_alone(
        ns, ROW('L', name, id, '', 0, NULL, false, '', '', '', 0, 0, 0, 0, 0, 0, 0, false)::operation, patience);
END $$;
