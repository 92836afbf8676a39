-- Times in _ns are nanoseconds of the host's CLOCK_BOOTTIME in the boot that meta.boot_id names; those in _us are wall
-- clock and only for people. Columns of `leases` stand in the order of core/entry.py.

CREATE TABLE meta (
    one              INTEGER PRIMARY KEY CHECK (one = 1),
    boot_id          TEXT    NOT NULL,
    floor            INTEGER NOT NULL,   -- no token up to this one is granted
    reserved         INTEGER NOT NULL,   -- on disk, fsynced, before any token up to it is granted
    watched_until_ns INTEGER NOT NULL    -- events are written down while somebody watches
);

CREATE TABLE boots (
    boot_id       TEXT PRIMARY KEY,
    first_seen_us INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE leases (
    namespace        TEXT NOT NULL,
    resource         TEXT NOT NULL,
    token            INTEGER NOT NULL,
    lease_id         TEXT,
    holder           TEXT NOT NULL,
    ttl_ns           INTEGER NOT NULL,
    expiry_ns        INTEGER NOT NULL,
    granted_ns       INTEGER NOT NULL,
    granted_us       INTEGER NOT NULL,
    renewed_us       INTEGER NOT NULL,
    renewals         INTEGER NOT NULL,
    metadata         TEXT NOT NULL,
    notify           TEXT NOT NULL,
    parent           TEXT,
    parent_token     INTEGER NOT NULL,
    soft_ns          INTEGER NOT NULL,
    grace_ns         INTEGER NOT NULL,
    lock_delay_ns    INTEGER NOT NULL,
    hold_at_least_ns INTEGER NOT NULL,
    ended            TEXT,
    revoked          INTEGER NOT NULL,
    has_children     INTEGER NOT NULL,
    waiting          TEXT,               -- JSON: queue, reservation, tombstones, and what else is rare
    PRIMARY KEY (namespace, resource)
) WITHOUT ROWID;

CREATE INDEX children ON leases (namespace, parent) WHERE parent IS NOT NULL;

CREATE TABLE watchers (
    address   TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    until_ns  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE events (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    kind      TEXT NOT NULL,
    resource  TEXT NOT NULL,
    token     INTEGER NOT NULL,
    holder    TEXT NOT NULL,
    at_us     INTEGER NOT NULL,
    ttl_ns    INTEGER NOT NULL
);
