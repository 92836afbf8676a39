-- The undisputed case of a release, in one statement: ours and alive, nobody waits, nobody watches, nothing under it.
-- It does what core/rules.py would do; where any condition fails it changes no row, and the rules decide.
-- ?1 namespace  ?2 resource  ?3 lease id  ?4 now  ?5 boot id
UPDATE leases
   SET lease_id = NULL, expiry_ns = ?4, ended = 'released', notify = ''
 WHERE namespace = ?1 AND resource = ?2 AND lease_id = ?3 AND expiry_ns > ?4 AND parent IS NULL AND waiting IS NULL
   AND NOT has_children AND hold_at_least_ns = 0
   AND (SELECT boot_id = ?5 AND watched_until_ns <= ?4 FROM meta)
