-- The undisputed case of a renewal, in one statement: ours, alive, not revoked, not under a parent, nothing under it.
-- It does what core/rules.py would do; where any condition fails it changes no row, and the rules decide.
-- ?1 namespace  ?2 resource  ?3 lease id  ?4 now  ?5 ttl  ?6 wall clock
UPDATE leases
   SET expiry_ns = ?4 + ?5, ttl_ns = max(ttl_ns, ?5), renewed_us = ?6, renewals = renewals + 1
 WHERE namespace = ?1 AND resource = ?2 AND lease_id = ?3 AND expiry_ns > ?4 AND expiry_ns <= ?4 + ?5
   AND parent IS NULL AND NOT revoked AND NOT has_children
