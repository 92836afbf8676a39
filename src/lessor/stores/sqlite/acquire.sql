-- The undisputed case of an acquire, in one statement: free by release, nobody waits, nobody watches, nothing under it,
-- and the wall clock is ahead of all tokens. It does what core/rules.py would do; where any condition fails it changes
-- no row, and the rules decide.
-- ?1 namespace  ?2 resource  ?3 lease id  ?4 holder  ?5 ttl  ?6 now  ?7 wall clock  ?8 metadata  ?9 notify
-- ?10 token  ?11 boot id
INSERT INTO leases
SELECT ?1, ?2, ?10, ?3, ?4, ?5, ?6 + ?5, ?6, ?7, ?7, 0, ?8, ?9, NULL, 0, 0, 0, 0, 0, NULL, 0, 0, NULL
  FROM meta
 WHERE boot_id = ?11 AND watched_until_ns <= ?6 AND floor < ?10 AND ?10 <= reserved
    ON CONFLICT (namespace, resource) DO UPDATE
   SET token = ?10, lease_id = ?3, holder = ?4, ttl_ns = ?5, expiry_ns = ?6 + ?5,
       granted_ns = ?6, granted_us = ?7, renewed_us = ?7, renewals = 0, metadata = ?8, notify = ?9, parent = NULL,
       parent_token = 0, soft_ns = 0, grace_ns = 0, lock_delay_ns = 0, hold_at_least_ns = 0, ended = NULL, revoked = 0
 WHERE token < ?10 AND lease_id IS NULL AND expiry_ns <= ?6 AND waiting IS NULL AND NOT has_children
