"""One connection, seen as the table that the rules work on."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from lessor.core import rules
from lessor.core.entry import Entry
from lessor.core.ops import Event, Granted, Renew, Renewed, Unknown
from lessor.errors import ConfigError
from lessor.stores.sqlite.file import sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lessor.core.ops import EventKind, Notice, Op, Outcome
    from lessor.stores.sqlite.file import Connection

_RARE = ("state", "children_ended")
"""What has no column of its own, and goes into that of ``waiting``."""
_NAMES = [f.name for f in fields(Entry) if f.name not in _RARE]
_COLUMNS = ", ".join(_NAMES)
_SELECT = f"SELECT {_COLUMNS} FROM leases WHERE namespace = ? AND "
_LOAD = _SELECT + "resource = ?"
_CHILDREN = _SELECT + "parent = ? AND parent_token = ? AND lease_id IS NOT NULL"
_QUIET = (
    "namespace = ? AND parent = ? AND parent_token = ? AND lease_id IS NOT NULL AND waiting IS NULL AND NOT has_children "
    "AND NOT lock_delay_ns"
)
_QUIET_CHILDREN = f"SELECT resource, token, holder FROM leases WHERE {_QUIET}"
_END_QUIET = f"UPDATE leases SET lease_id = NULL, expiry_ns = ?, ended = ?, notify = '' WHERE {_QUIET}"
_SCAN = _SELECT + "resource >= ? AND resource < ? ORDER BY resource"
_SCAN_TO_END = _SELECT + "resource >= ? ORDER BY resource"
_FROM = _SELECT + "resource > ? ORDER BY resource LIMIT ?"
_SAVE = f"REPLACE INTO leases (namespace, {_COLUMNS}) VALUES (?{', ?' * len(_NAMES)})"
_RENEW = sql("renew.sql")
_META = "SELECT boot_id, floor, reserved, watched_until_ns FROM meta"

KEEP_NS = 60_000_000_000
"""How long the row of a free resource is kept."""
EVENTS_KEPT = 10_000
"""How far a watcher may fall behind before it is told that it missed something."""
TRIM_EVERY = 256
"""Events between two trimmings of the log."""


class SqliteTable:
    """The leases of one namespace, through one connection. Good for one transaction after each ``begin``."""

    def __init__(self, db: Connection, namespace: str) -> None:
        self.db = db
        self.namespace = namespace
        self.floor = self.reserved = self.wall_us = self.watched_until_ns = 0
        self.events: list[Event] = []
        self.notices: list[Notice] = []

    def begin(self, boot_id: str, now: int, wall_us: int) -> bool:
        """Read what holds for the whole file. The write lock is held. False: it had to be carried over into this boot.

        In that case commit, and begin again: the work that follows may be undone, and this must not be undone with it.
        """
        self.wall_us = wall_us
        self.events = []
        self.notices = []
        written_in, self.floor, self.reserved, self.watched_until_ns = self.db.execute(_META).fetchone()
        if written_in == boot_id:
            return True
        self._move_to_boot(boot_id, now)
        return False

    # --- for the rules --------------------------------------------------------------------------------------------

    def load(self, resource: str) -> Entry:
        """Return the entry, or a fresh one."""
        row = self.db.execute(_LOAD, (self.namespace, resource)).fetchone()
        return _entry(row) if row is not None else Entry(resource)

    def save(self, e: Entry) -> None:
        """Write the entry's row."""
        row = (
            self.namespace, e.resource, e.token, e.lease_id, e.holder, e.ttl_ns, e.expiry_ns, e.granted_ns,
            e.granted_us, e.renewed_us, e.renewals, e.metadata, e.notify, e.parent, e.parent_token, e.soft_ns,
            e.grace_ns, e.lock_delay_ns, e.hold_at_least_ns, e.ended, e.revoked, e.has_children,
            e.rare(),
        )  # fmt: skip
        self.db.execute(_SAVE, row)

    def children(self, resource: str, token: int) -> list[Entry]:
        """Return the entries of leases whose parent is this lease."""
        return [_entry(row) for row in self.db.execute(_CHILDREN, (self.namespace, resource, token)).fetchall()]

    def end_quiet_children(self, resource: str, token: int, now: int, kind: EventKind) -> None:
        """End all under this lease that nobody waits for and that have nothing under them, in one statement."""
        which = (self.namespace, resource, token)
        if self.watched_until_ns > now:
            for name, minted, holder in self.db.execute(_QUIET_CHILDREN, which):
                self.events.append(Event(kind, name, minted, holder, self.wall_us))
        self.db.execute(_END_QUIET, (now, str(kind), *which))

    # --- for the store --------------------------------------------------------------------------------------------

    def renew(self, op: Renew, now: int) -> bool:
        """Renew without further ado where nothing speaks against it: a process may hold thousands of leases."""
        row = (self.namespace, op.resource, op.lease_id, now, op.ttl_ns, self.wall_us)
        return self.db.execute(_RENEW, row).rowcount == 1

    def scan(self, prefix: str) -> Iterator[Entry]:
        """Return all entries under the prefix, by name."""
        end = _after_all(prefix)
        query, bounds = (_SCAN, (prefix, end)) if end else (_SCAN_TO_END, (prefix,))
        for row in self.db.execute(query, (self.namespace, *bounds)).fetchall():
            yield _entry(row)

    def log_events(self, now: int) -> list[str]:
        """Write the events down if somebody watches, and return who."""
        if not self.events or self.watched_until_ns <= now:
            return []
        query = "SELECT address FROM watchers WHERE namespace = ? AND until_ns > ?"
        watchers = [row[0] for row in self.db.execute(query, (self.namespace, now))]
        if watchers:
            rows = [(self.namespace, str(e.kind), *e[1:]) for e in self.events]
            insert = (
                "INSERT INTO events (namespace, kind, resource, token, holder, at_us, ttl_ns) VALUES (?,?,?,?,?,?,?)"
            )
            self.db.executemany(insert, rows)
            last = self.db.execute("SELECT max(seq) FROM events").fetchone()[0]
            if last // TRIM_EVERY != (last - len(rows)) // TRIM_EVERY:
                self.db.execute("DELETE FROM events WHERE seq <= ?", (last - EVENTS_KEPT,))
        return watchers

    def collect(self, after: str, limit: int, now: int, *, kept_ns: int = KEEP_NS) -> str:
        """Forget free resources among the next ``limit`` rows, and return where to go on.

        What was the highest token among them becomes the floor for all, in the same transaction: no token comes back.
        """
        rows = self.db.execute(_FROM, (self.namespace, after, limit)).fetchall()
        entries = [_entry(row) for row in rows]
        dead = [e for e in entries if rules.is_dead(e, now, kept_ns=kept_ns, table=self)]
        if dead:
            self.floor = max(self.floor, *(e.token for e in dead))
            self.db.execute("UPDATE meta SET floor = max(floor, ?)", (self.floor,))
            delete = "DELETE FROM leases WHERE namespace = ? AND resource = ?"
            self.db.executemany(delete, [(self.namespace, e.resource) for e in dead])
        return entries[-1].resource if len(entries) == limit else ""

    def _move_to_boot(self, boot_id: str, now: int) -> None:
        """Carry the file over into a boot that it has not seen.

        The times in it count from another boot, so nothing tells what is left of them; every lease is given its whole
        TTL again. That also keeps us out while a container with a boot id of its own still holds something here. A
        boot id that was here before the last one can't be a reboot: two kernels share the file.
        """
        db = self.db
        if db.execute("SELECT 1 FROM boots WHERE boot_id = ?", (boot_id,)).fetchone():
            raise ConfigError(
                "two kernels, or containers with boot ids of their own, use this SQLite file at once, and their clocks "
                "can't be compared: give each its own file, or use a server"
            )
        db.execute("INSERT INTO boots VALUES (?, ?)", (boot_id, self.wall_us))
        db.execute(
            "UPDATE leases SET waiting = NULL, granted_ns = :now, expiry_ns = :now + "
            "CASE WHEN lease_id IS NULL THEN hold_at_least_ns ELSE ttl_ns END",
            {"now": now},
        )
        db.execute("DELETE FROM watchers")
        # Grants that were not yet on disk when the power went are forgotten; their tokens are not: they lie in the
        # block that was reserved, on disk, before the first of them was granted.
        self.floor = max(self.floor, self.reserved)
        self.watched_until_ns = 0
        db.execute("UPDATE meta SET boot_id = ?, floor = ?, watched_until_ns = 0", (boot_id, self.floor))


def _after_all(prefix: str) -> str:
    """Return the least text that is above all that start with the prefix; "" where there is none."""
    kept = prefix.rstrip("\U0010ffff")
    if not kept:
        return ""
    following = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if following == 0xD800 else following)  # no text has the surrogates in between


def _entry(row: tuple[object, ...]) -> Entry:
    entry = Entry(*row)  # type: ignore[arg-type]
    if entry.waiting is not None:
        entry.take_rare(entry.waiting)  # type: ignore[arg-type]
    return entry


def apply_all(table: SqliteTable, now: int, *, ops: Sequence[Op]) -> list[Outcome]:
    """Carry out the operations, each by itself."""
    outcomes: list[Outcome] = []
    for op in ops:
        try:
            if type(op) is Renew and table.renew(op, now):
                outcomes.append(Renewed(op.ttl_ns))
            else:
                outcomes.append(rules.apply(table, op, now))
        except ConfigError as error:
            outcomes.append(Unknown(error))
    return outcomes


def highest_token(result: object) -> int:
    """Return the highest token that was granted; 0: none was."""
    if not isinstance(result, list):
        return 0
    return max((o.token for o in result if type(o) is Granted), default=0)
