"""What etcd has about some resources, as the table that the rules decide on.

etcd has no clock that a transaction could read. Whether a lease lives is whether its key is there, so the times of
the rules are made up around one ``now``: what is there has time left, and what is free is so for as long as this
client has seen it free.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from lessor.core.clock import SECOND
from lessor.core.entry import Entry, Reservation, Waiter, Waiting
from lessor.core.ops import RESERVATION_NS, WAITER_LIFE_NS, Acquire, Release, Revoke
from lessor.core.queue import is_for
from lessor.core.rules import TOMBSTONE_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lessor.core.clock import Clock
    from lessor.core.ops import Event, Notice, Op
    from lessor.stores.etcd.layout import KV, Layout

MOST_FOR_ONE: Final = 100
"""Reads for one operation, and writes about what stands below a lease; etcd takes 128 in a transaction by default.

What stands below and finds no room ends all the same, with what it stands under, but nobody is told of it.
"""


@dataclass(slots=True)
class Snapshot:
    """The keys of one resource, at one moment."""

    resource: str
    kv: KV | None
    waits: list[KV] = field(default_factory=list)
    children: list[str] | None = None
    """None: nobody has looked."""

    @property
    def modified(self) -> int:
        """The revision of the last write of the lease's key; 0 where there is none."""
        return self.kv.modified if self.kv else 0

    def held(self) -> KV | None:
        """Return the lease's key, where somebody holds it."""
        return self.kv if self.kv is not None and self.kv.held else None

    def grace(self) -> KV | None:
        """Return who holds it or held it last, and may come back after the expiry."""
        return next((kv for kv in self.waits if "//grace/" in kv.key), None)

    def last(self) -> KV | None:
        """Return what is known of the lease that is, or of the one that was and may come back."""
        return self.held() or self.grace()

    def delay(self) -> KV | None:
        """Return what keeps everybody out once the lease runs out."""
        return next((kv for kv in self.waits if kv.key.endswith("//closed/delay")), None)

    def hold(self) -> KV | None:
        """Return what keeps everybody out once the lease is released."""
        return next((kv for kv in self.waits if kv.key.endswith("//closed/hold")), None)

    def closed(self) -> KV | None:
        """Return what keeps everybody out of a resource that nobody holds."""
        hold = self.hold()
        return hold if hold is not None and hold.value.get("released") else self.delay()

    def waiters(self) -> list[KV]:
        """Return the queue, in the order of their turns."""
        return in_turn(self.waits)

    def waiter(self, lease_id: str) -> KV | None:
        """Return this id's place in the queue."""
        return next((kv for kv in self.waiters() if id_of(kv) == lease_id), None)

    def kept(self) -> KV | None:
        """Return for whom the free resource is kept since it was handed over."""
        return next((kv for kv in self.waits if "//kept/" in kv.key), None)

    def first(self) -> str | None:
        """Return whose turn it was when the resource came free, if somebody ended the lease then."""
        if self.kv is None:
            return None
        reserved: str | None = self.kv.value.get("reserved")
        return reserved or next((id_of(kv) for kv in self.waiters() if kv.created < self.modified), None)

    def writes_to_end(self) -> int:
        """Return how many writes it takes, at most, to end the lease, and to call whoever waits for it."""
        return 2 + sum("//closed/" in kv.key or "//grace/" in kv.key for kv in self.waits) + bool(self.waiters())

    def etcd_leases(self) -> list[int]:
        """Return the etcd leases whose time matters to others: the holder's, and of what keeps them out after it."""
        return [kv.lease for kv in (self.held(), self.closed()) if kv is not None]


def in_turn(waits: list[KV]) -> list[KV]:
    """Return those of the keys that are waiters: by priority, and as they came."""
    places = [kv for kv in waits if "//queue/" in kv.key or "//ranked/" in kv.key]
    return sorted(places, key=lambda kv: (-kv.value.get("priority", 0), kv.created))


def id_of(place: KV) -> str:
    """Return the lease id that a key ends with."""
    return place.key.partition("//")[2].partition("/")[2]


class Missing(Exception):  # noqa: N818 - no error: it says what to look at
    """The rules need to know about other resources, too, or what stands under some."""

    def __init__(self, names: Sequence[str] = (), families: Sequence[str] = ()) -> None:
        self.names = names
        self.families = families


class Table:
    """A `lessor.core.rules.Table` of what was read. What is saved is for `plan` to write."""

    floor = 0

    def __init__(
        self, op: Op, layout: Layout, loaded: dict[str, Snapshot], left: dict[int, tuple[int, int]], clock: Clock
    ) -> None:
        self.now = clock.now()
        self.wall_us = clock.wall_us()
        self.free_for: Callable[[Snapshot], int] = lambda _: 0
        """For how long a resource was seen free."""
        self.certain: Callable[[str, str, int], int] = lambda *_: 0
        """For how long an etcd lease lasts that a lease of our own hangs on; 0 where it isn't ours, or that is over."""
        self.room = 0
        """How much more may be read."""
        self.events: list[Event] = []
        self.notices: list[Notice] = []
        self.saved: dict[str, Entry] = {}
        self.loaded = loaded
        self.guessed: set[int] = set()
        """The etcd leases whose time was needed, and isn't known."""
        self._op = op
        self._layout = layout
        self._left = left
        self._entries: dict[str, Entry] = {}
        self._writes_left = MOST_FOR_ONE

    def load(self, resource: str) -> Entry:
        """Return the entry."""
        entry = self._entries.get(resource)
        if entry is None:
            if resource not in self.loaded:
                raise Missing([resource])
            entry = self._entries[resource] = self._entry(self.loaded[resource])
        return entry

    def save(self, entry: Entry) -> None:
        """Note that it has changed."""
        self.saved[entry.resource] = entry

    def children(self, resource: str, token: int) -> list[Entry]:
        """Return the entries whose parent is this lease, as far as one transaction can read and end them."""
        names = self.loaded[resource].children
        if names is None:
            if not self.room:
                return []
            raise Missing(families=[resource])
        unknown = [name for name in names if name not in self.loaded][: self.room // 2]
        if unknown:
            raise Missing(unknown)
        found = [self.load(name) for name in names if name in self.loaded]
        entries = [e for e in found if (e.parent, e.parent_token) == (resource, token)]
        parents = [e.resource for e in entries if e.has_children]
        unseen = [name for name in parents if self.loaded[name].children is None][: self.room]
        if unseen:
            raise Missing(families=unseen)
        return [*takewhile(self._can_end, entries)]

    # --- inside ---------------------------------------------------------------------------------------------------

    def _can_end(self, entry: Entry) -> bool:
        """Whether there is room for the writes that end this lease, too."""
        self._writes_left -= self.loaded[entry.resource].writes_to_end()
        return self._writes_left >= 0

    def _time_left(self, lease: int, resource: str, owner: str = "", *, matters: bool = True) -> int:
        """Return the time that others have to wait, at most; or, for whoever relies on it, that is left at least."""
        op = self._op
        for_others = isinstance(op, Revoke) or (isinstance(op, Acquire) and op.lease_id != owner)
        at_most = for_others and resource == op.resource
        known = 0 if at_most else self.certain(resource, owner, lease)
        if known > 0:
            return known
        left = self._left.get(lease)
        if left is None:
            if matters:
                self.guessed.add(lease)
            return SECOND
        return max(1, left[at_most])

    def _entry(self, snapshot: Snapshot) -> Entry:
        entry = Entry(snapshot.resource)
        kv, now = snapshot.kv, self.now
        if kv is not None:
            entry.token = kv.token
            entry.holder = kv.value["holder"]
        closed, late = snapshot.closed(), snapshot.grace()
        if kv is not None and kv.held and closed is not None and self._is_orphan(kv):
            self._closed(entry, closed, snapshot)
        elif kv is not None and kv.held:
            self._held(entry, kv, snapshot)
        elif late is not None:
            self._late(entry, late, snapshot)
        elif closed is not None:
            self._closed(entry, closed, snapshot)
        else:
            entry.expiry_ns = now - self.free_for(snapshot)
        if kv is not None and not kv.held:
            entry.ended = kv.value["state"]
        entry.waiting = self._waiting(entry, snapshot)
        return entry

    def _is_orphan(self, kv: KV) -> bool:
        """Whether the parent is over, and with it the lease, whose own key lasts longer."""
        name, token = kv.value.get("parent", (None, 0))
        above = self.load(name) if name is not None else None
        return above is not None and (above.token != token or above.lease_id is None)

    def _held(self, entry: Entry, kv: KV, snapshot: Snapshot) -> None:
        value, now = kv.value, self.now
        entry.lease_id = value["id"]
        entry.ttl_ns = value["ttl_ns"]
        matters = self._matters(value, snapshot)
        entry.expiry_ns = now + self._time_left(kv.lease, snapshot.resource, value["id"], matters=matters)
        entry.granted_us = entry.renewed_us = value["granted_us"]
        entry.metadata = value.get("metadata", "")
        entry.notify = value.get("notify", "")
        entry.parent, entry.parent_token = value.get("parent", (None, 0))
        entry.state = value.get("inherited", "")
        entry.children_ended = value.get("children_ended", 0)
        for name in ("soft_ns", "grace_ns", "lock_delay_ns", "hold_at_least_ns"):
            setattr(entry, name, value.get(name, 0))
        entry.revoked = value.get("revoked", False)
        entry.has_children = value.get("has_children", False)
        # By the wall clocks of two hosts, since etcd tells nobody how long a key has been there.
        held_ns = max(0, self.wall_us - entry.granted_us) * 1000
        entry.granted_ns = now - max(entry.hold_at_least_ns, held_ns)
        hold = snapshot.hold()
        if hold is not None:
            if hold.lease not in self._left:
                self.guessed.add(hold.lease)
            left = self._left.get(hold.lease, (0, entry.hold_at_least_ns))[1]
            entry.granted_ns = now - entry.hold_at_least_ns + left

    def _closed(self, entry: Entry, closed: KV, snapshot: Snapshot) -> None:
        """Take in what is closed: after a release, or after an expiry, when its lease id is still known."""
        value, left = closed.value, self._time_left(closed.lease, snapshot.resource)
        # The key of a lock delay was made with the grant, and is as old as its token.
        entry.token = value.get("token") or max(entry.token, closed.created + value.get("plus", 0))
        entry.holder, entry.ttl_ns = value["holder"], value["ttl_ns"]
        entry.granted_us = entry.renewed_us = value["granted_us"]
        if value.get("released"):
            entry.hold_at_least_ns = value["hold_at_least_ns"]
            entry.expiry_ns = self.now + left
        else:
            entry.lease_id = value["id"]
            entry.lock_delay_ns = max(value["lock_delay_ns"], left)  # etcd counts in whole seconds
            entry.expiry_ns = self.now + left - entry.lock_delay_ns

    def _late(self, entry: Entry, late: KV, snapshot: Snapshot) -> None:
        """Take in a lease that has run out. Its key is there as long as it may come back."""
        free_for = self.free_for(snapshot)
        entry.lease_id, entry.token, entry.holder = late.value["id"], late.token, late.value["holder"]
        entry.ttl_ns = late.value["ttl_ns"]
        entry.granted_us = entry.renewed_us = late.value["granted_us"]
        entry.parent, entry.parent_token = late.value.get("parent", (None, 0))
        entry.expiry_ns = self.now - free_for
        entry.grace_ns = free_for + SECOND
        closed = snapshot.closed()
        if closed is not None:
            entry.lock_delay_ns = free_for + self._time_left(closed.lease, snapshot.resource)

    def _matters(self, value: dict[str, Any], snapshot: Snapshot) -> bool:
        """Whether what is answered depends on how much time a lease has left."""
        op = self._op
        if isinstance(op, Release) or (isinstance(op, Revoke) and op.force):
            return False
        if snapshot.resource != op.resource or value.get("revoked") or value["ttl_ns"] == 0:
            return True
        return isinstance(op, Revoke) or (isinstance(op, Acquire) and op.lease_id != value["id"])

    def _waiting(self, entry: Entry, snapshot: Snapshot) -> Waiting | None:
        now = self.now
        waiting = Waiting()
        for kv in snapshot.waiters():
            value = kv.value
            place = Waiter(id_of(kv), value["holder"], value["notify"], value["since_us"], now + WAITER_LIFE_NS)
            place.priority = value.get("priority", 0)
            waiting.insert(len(waiting.queue), place)
        never = [kv for kv in snapshot.waits if "//never/" in kv.key]
        waiting.tombstones = {id_of(kv): now + TOMBSTONE_NS for kv in never}
        if entry.lease_id is None:
            waiting.reservation = self._reservation(entry, snapshot)
            if waiting.reservation is not None and waiting.reservation.until_ns <= now:
                _let_lapse(entry, waiting, waiting.reservation)
        return waiting if waiting.queue or waiting.tombstones or waiting.reservation else None

    def _reservation(self, entry: Entry, snapshot: Snapshot) -> Reservation | None:
        """Return for whom a free resource is kept: a successor, or the first of those that waited when it came free."""
        kept = snapshot.kept()
        if kept is not None:
            value, op = kept.value, self._op
            until = entry.expiry_ns + value["reserve_ns"]
            reservation = Reservation(until, value["id"], value["successor"], value["state"])
            if isinstance(op, Acquire) and op.resource == snapshot.resource and not is_for(reservation, op):
                left = self._time_left(kept.lease, snapshot.resource)
                reservation.until_ns = min(until, self.now + left)
            return reservation
        first = snapshot.first()
        return Reservation(entry.expiry_ns + RESERVATION_NS, first) if first else None


def _let_lapse(entry: Entry, waiting: Waiting, reservation: Reservation) -> None:
    """End a reservation that has run out. Nothing remembers who is called next, so the turns go on by the clock."""
    for waiter in waiting.queue:
        waiter.passed = waiter.passed or waiter.lease_id == reservation.lease_id
    entry.expiry_ns = reservation.until_ns
    waiting.reservation = None
