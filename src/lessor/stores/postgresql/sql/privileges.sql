-- What clients call. Whoever may use the schema may call these and see the view, and nothing else: they are run with the
-- rights of their owner, and the tables, which have the lease ids, are for the owner alone.
DO $$
DECLARE
    called regprocedure[] := ARRAY[
        'apply(text, json, integer)', 'apply_within(text, json, integer)', 'release(text, text, text, integer)',
        'acquire(text, text, text, text, bigint, boolean, text, bigint, text, integer)', 'read(text, json)',
        'contenders(text, text)', 'scan(text, text, text, integer)', 'watch(text, integer)', 'collect(text, integer, integer)',
        'rehearse(text)'];
    seen regprocedure[] := ARRAY['schema_version()', 'leases_now()'];
    one regprocedure;
BEGIN
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
REVOKE ALL ON meta, spaces, entries, waiters, tombstones, leases FROM PUBLIC;
GRANT SELECT ON leases TO PUBLIC;
