"""A tiny table in virtual time, for tests of the rules."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from lessor.core import rules
from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.entry import Entry
from lessor.core.ops import Acquire, Granted, Release, Renew, Revoke

if TYPE_CHECKING:
    from lessor.core.lease import Record
    from lessor.core.ops import Event, Notice, Op, Outcome

START_NS = 1_000 * SECOND
WALL_US = 1_700_000_000_000_000
TTL = 10 * SECOND
MS = MILLISECOND


class CopyingTable:
    """Keeps copies, as a database does: what a rule changes and does not save is lost."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.floor = 0
        self.wall_us = WALL_US
        self.events: list[Event] = []
        self.notices: list[Notice] = []

    def load(self, resource: str) -> Entry:
        found = self.entries.get(resource)
        return Entry(resource) if found is None else copy.deepcopy(found)

    def save(self, entry: Entry) -> None:
        self.entries[entry.resource] = copy.deepcopy(entry)

    def children(self, resource: str, token: int) -> list[Entry]:
        found = [e for e in self.entries.values() if e.parent == resource and e.parent_token == token]
        return copy.deepcopy(found)

    def collect(self, now: int, kept_ns: int = 0) -> set[str]:
        dead = [e for e in self.entries.values() if rules.is_dead(e, now, kept_ns=kept_ns, table=self)]
        for entry in dead:
            self.floor = max(self.floor, entry.token)
            del self.entries[entry.resource]
        return {entry.resource for entry in dead}


class SharingTable(CopyingTable):
    """Hands out the objects that it keeps, as a store in memory does: what a rule changes is changed at once."""

    def load(self, resource: str) -> Entry:
        return self.entries.get(resource) or Entry(resource)

    def save(self, entry: Entry) -> None:
        self.entries[entry.resource] = entry

    def children(self, resource: str, token: int) -> list[Entry]:
        return [e for e in self.entries.values() if e.parent == resource and e.parent_token == token]


class World:
    """A table, the time, and shorthand for the operations."""

    def __init__(self, table: CopyingTable | None = None) -> None:
        self.table = CopyingTable() if table is None else table
        self.now = START_NS

    def advance(self, ns: int) -> None:
        self.now += ns
        self.table.wall_us += ns // 1000

    def apply(self, op: Op) -> Outcome:
        return rules.apply(self.table, op, self.now)

    def acquire(self, resource: str, lease_id: str, ttl_ns: int = TTL, **rest: Any) -> Outcome:
        rest.setdefault("holder", "h-" + lease_id)
        return self.apply(Acquire(resource, lease_id, ttl_ns=ttl_ns, **rest))

    def grant(self, resource: str, lease_id: str, ttl_ns: int = TTL, **rest: Any) -> int:
        outcome = self.acquire(resource, lease_id, ttl_ns, **rest)
        assert isinstance(outcome, Granted), outcome
        return outcome.token

    def queue(self, resource: str, lease_id: str, **rest: Any) -> Outcome:
        return self.acquire(resource, lease_id, queue=True, notify="to-" + lease_id, **rest)

    def renew(self, resource: str, lease_id: str, token: int, ttl_ns: int = TTL) -> Outcome:
        return self.apply(Renew(resource, lease_id, token, ttl_ns))

    def release(self, resource: str, lease_id: str, **rest: Any) -> Outcome:
        return self.apply(Release(resource, lease_id, **rest))

    def revoke(self, resource: str, *, force: bool = False, token: int | None = None) -> Outcome:
        return self.apply(Revoke(resource, force, token))

    def record(self, resource: str) -> Record | None:
        return rules.record(self.table, self.table.load(resource), self.now)

    def holds(self, resource: str, lease_id: str) -> bool:
        entry = self.table.load(resource)
        return entry.lease_id == lease_id and self.now < rules.expiry_of(self.table, entry)

    def called(self) -> list[str]:
        """Return whom the store called since the last look."""
        called = [notice.lease_id for notice in self.table.notices]
        self.table.notices.clear()
        return called
