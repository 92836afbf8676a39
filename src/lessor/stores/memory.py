"""Leases inside one process: for tests, and for programs that have threads or tasks but no neighbours.

It is no protection against other processes, and nothing of it survives this one.
"""

from __future__ import annotations

import os
import queue
from typing import TYPE_CHECKING

from lessor.core import rules
from lessor.core.entry import Entry
from lessor.core.ops import Notice, Unknown
from lessor.core.timing import UNSLEWED_DRIFT
from lessor.errors import ConfigError
from lessor.stores.base import Capability, Guarantees
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lessor.core.clock import Clock
    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Event, Op, Outcome
    from lessor.stores.base import StoreURL

KEEP_NS = 60_000_000_000
"""How long the entry of a free resource is kept."""
COLLECT_EVERY = 10_000
"""Grants between two looks for entries to forget."""


class MemoryTable:
    """The leases of one name and namespace, shared by all stores of this process that name it."""

    def __init__(self) -> None:
        self.lock = new_lock()
        self.entries: dict[str, Entry] = {}
        self.subscriptions: dict[str, MemorySubscription] = {}
        self.floor = 0
        self.wall_us = 0
        self.events: list[Event] = []
        self.notices: list[Notice] = []
        self.applied = 0

    def load(self, resource: str) -> Entry:
        """Return the entry, or a fresh one."""
        return self.entries.get(resource) or Entry(resource)

    def save(self, entry: Entry) -> None:
        """Keep the entry."""
        self.entries[entry.resource] = entry

    def children(self, resource: str, token: int) -> Iterable[Entry]:
        """Return the entries whose parent is this lease."""
        return [e for e in self.entries.values() if e.parent == resource and e.parent_token == token]

    def collect(self, now: int, *, kept_ns: int = KEEP_NS) -> None:
        """Forget free resources; what was the highest token among them is remembered for all."""
        dead = [e for e in self.entries.values() if rules.is_dead(e, now, kept_ns=kept_ns, table=self)]
        for entry in dead:
            self.floor = max(self.floor, entry.token)
            del self.entries[entry.resource]

    def push(self) -> None:
        """Hand out what the last operations had to say."""
        if self.events:
            for subscription in list(self.subscriptions.values()):
                subscription.offer(self.events)
            self.events = []
        if self.notices:
            for notice in self.notices:
                called = self.subscriptions.get(notice.address)
                if called is not None:
                    called.offer([notice])
            self.notices = []


class MemorySubscription:
    """A queue that the table fills."""

    def __init__(self, table: MemoryTable, address: str, prefix: str | None) -> None:
        self.address = address
        self._table = table
        self._prefix = prefix
        self._queue: queue.SimpleQueue[Event | Notice | None] = queue.SimpleQueue()

    def offer(self, news: Sequence[Event | Notice]) -> None:
        """Take what concerns this subscriber. Called under the table's lock, which keeps the order."""
        for item in filter(self.wants, news):
            self._queue.put(item)

    def wants(self, item: Event | Notice) -> bool:
        """Whether this concerns the subscriber."""
        return isinstance(item, Notice) or (self._prefix is not None and item.resource.startswith(self._prefix))

    def get(self, timeout: float) -> list[Event | Notice] | None:
        """Return what came."""
        try:
            first = self._queue.get(timeout=max(timeout, 0))
        except queue.Empty:
            return []
        return [] if first is None else [first]

    def interrupt(self) -> None:
        """Let the ``get`` that is under way, or else the next one, return now."""
        self._queue.put(None)

    def close(self) -> None:
        """End it."""
        self._table.subscriptions.pop(self.address, None)
        self._queue.put(None)


_tables: dict[tuple[int, str, str], MemoryTable] = {}


class MemoryStore:
    """``memory://``, or ``memory://name`` to have several apart."""

    guarantees = Guarantees(
        store="memory",
        clock="the host's CLOCK_BOOTTIME",
        drift=UNSLEWED_DRIFT,
        tokens="increase while the process lives, and beyond it by the wall clock",
        failover="none: it ends with the process",
        waiting_order="strict",
        platforms="POSIX",
        capabilities=Capability.PUSH
        | Capability.WATCH
        | Capability.GRACE
        | Capability.PATTERNS
        | Capability.DELAY_SHOWN,
        not_promised="anything towards other processes, forks included",
    )

    def __init__(self, url: StoreURL, clock: Clock, table: MemoryTable | None = None) -> None:
        url.only("namespace")
        name = url.netloc + url.path
        self.url = f"memory://{name}?namespace={url.namespace}"
        self._clock = clock
        clock.host_ns()  # what it needs to be read is there from now on
        if table is not None:
            self._table = table
            return
        # A fork copies the memory but must not copy the leases, so the process is part of the name.
        self._table = _tables.setdefault((os.getpid(), name, url.namespace), MemoryTable())

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:  # noqa: ARG002 - nothing here takes time
        """Carry out the operations under the table's lock."""
        table = self._table
        with table.lock:
            now = self._clock.host_ns()
            table.wall_us = self._clock.wall_us()
            outcomes = [_one(table, op, now) for op in ops]
            table.applied += len(ops)
            if table.applied >= COLLECT_EVERY:
                table.applied = 0
                table.collect(now)
            table.push()
            return outcomes

    def read(self, resources: Sequence[str], *, timeout: float) -> list[Record | None]:  # noqa: ARG002
        """Return who holds what."""
        table = self._table
        with table.lock:
            now = self._clock.host_ns()
            return [rules.record(table, table.load(name), now) for name in resources]

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Record]:  # noqa: ARG002
        """Return all live leases under the prefix."""
        table = self._table
        with table.lock:
            names = sorted(name for name in table.entries if name.startswith(prefix))
            now = self._clock.host_ns()
            records = [rules.record(table, table.load(name), now) for name in names]
        return iter([record for record in records if record is not None])

    def waiters(self, resource: str, *, timeout: float) -> list[Contender]:  # noqa: ARG002
        """Return who waits for the resource."""
        with self._table.lock:
            return self._table.load(resource).contenders(self._clock.host_ns())

    def subscribe(self, prefix: str | None = None) -> MemorySubscription:
        """Be told."""
        subscription = MemorySubscription(self._table, os.urandom(8).hex(), prefix)
        self._table.subscriptions[subscription.address] = subscription
        return subscription

    def collect(self) -> None:
        """Forget all free resources now."""
        with self._table.lock:
            self._table.collect(self._clock.host_ns(), kept_ns=0)

    def close(self) -> None:
        """Nothing to let go of: the leases belong to the process."""


def _one(table: MemoryTable, op: Op, now: int) -> Outcome:
    try:
        return rules.apply(table, op, now)
    except ConfigError as error:
        return Unknown(error)
