"""All that a store keeps about one resource: the lease, the queue for it, and who it is reserved for."""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from lessor.core.lease import Contender, Record, decode_metadata

if TYPE_CHECKING:
    from lessor.core.lease import Closed

_rank_of = attrgetter("rank")

MOST_TOMBSTONES = 10_000
"""For one resource: whoever gives up faster, for a minute, has requests that came late granted, and they expire."""


@dataclass(slots=True)
class Waiter:
    """A place in the queue. It dies by itself unless the waiter shows up."""

    lease_id: str
    holder: str
    notify: str
    since_us: int
    expiry_ns: int
    passed: bool = False
    """It did not come when it was its turn. It keeps its place, but is not called again before it shows up."""
    priority: int = 0
    ticket: int = 0
    """Its number where several nodes keep the queue, each for itself; elsewhere the queue's order says it all."""
    rank: float = field(default=0.0, compare=False)
    """Higher than that of all before it in the queue, so that its position is soon found."""


@dataclass(slots=True)
class Reservation:
    """Nobody but this waiter, or a holder of this name, gets the resource before ``until_ns``."""

    until_ns: int
    lease_id: str = ""
    successor: str = ""
    state: str = ""
    """What goes to it with the grant."""
    after: int = 0
    """The token of the lease that was handed over; 0 where none was."""


@dataclass(slots=True)
class Waiting:
    """The part of an entry that most entries don't have. Thousands may wait, so nothing here looks at all of them often."""

    queue: list[Waiter] = field(default_factory=list)
    """To be changed by the methods below."""
    reservation: Reservation | None = None
    tombstones: dict[str, int] = field(default_factory=dict)
    """Lease ids that must never be granted, and until when that is remembered."""
    last_ticket: int = field(init=False, repr=False, compare=False)
    """The highest so far, where places have tickets."""
    _by_id: dict[str, Waiter] = field(init=False, repr=False, compare=False)
    _tidy_ns: int = field(default=0, init=False, repr=False, compare=False)
    """Nothing here is over before that time."""

    def __post_init__(self) -> None:
        self._by_id = {waiter.lease_id: waiter for waiter in self.queue}
        self.last_ticket = max((waiter.ticket for waiter in self.queue), default=0)
        self._rank()

    def find(self, lease_id: str) -> Waiter | None:
        """Return the waiter with this id."""
        return self._by_id.get(lease_id)

    def position(self, waiter: Waiter) -> int:
        """Return how many are before a waiter."""
        return bisect_left(self.queue, waiter.rank, key=_rank_of)

    def insert(self, at: int, waiter: Waiter) -> None:
        """Let somebody wait behind so many others."""
        queue = self.queue
        before = queue[at - 1].rank if at else (queue[0].rank - 2 if queue else 0.0)
        after = queue[at].rank if at < len(queue) else before + 2
        waiter.rank = (before + after) / 2
        queue.insert(at, waiter)
        if not before < waiter.rank < after:  # there is no number left between the two
            self._rank()
        self._by_id[waiter.lease_id] = waiter
        self._tidy_ns = min(self._tidy_ns, waiter.expiry_ns)

    def keep(self, waiter: Waiter, until_ns: int) -> None:
        """Keep a waiter that has shown up. Where the clock was set back, that is shorter than before."""
        waiter.expiry_ns = until_ns
        self._tidy_ns = min(self._tidy_ns, until_ns)

    def _rank(self) -> None:
        for at, waiter in enumerate(self.queue):
            waiter.rank = float(at)

    def remove(self, waiter: Waiter) -> None:
        """Take a waiter out."""
        del self.queue[self.position(waiter)]
        del self._by_id[waiter.lease_id]

    def bury(self, lease_id: str, until_ns: int) -> None:
        """Never grant this id; with too many of these, the first ones are forgotten."""
        tombstones = self.tombstones
        tombstones.pop(lease_id, None)
        tombstones[lease_id] = until_ns
        if len(tombstones) > MOST_TOMBSTONES:
            del tombstones[next(iter(tombstones))]
        self._tidy_ns = min(self._tidy_ns, until_ns)

    def tidy(self, now: int) -> None:
        """Forget dead waiters and old tombstones."""
        if now < self._tidy_ns:
            return
        self.queue[:] = [w for w in self.queue if w.expiry_ns > now]
        self._by_id = {w.lease_id: w for w in self.queue}
        self.tombstones = {i: until for i, until in self.tombstones.items() if until > now}
        ends = [*(w.expiry_ns for w in self.queue), *self.tombstones.values()]
        self._tidy_ns = min(ends, default=0)

    def live(self, now: int) -> list[Waiter]:
        """Return the waiters that still count, in the order of their turns."""
        return [w for w in self.queue if w.expiry_ns > now]


@dataclass(slots=True)
class Entry:
    """One resource. All times are on the store's own clock, but those in ``_us``, which are for people."""

    resource: str
    token: int = 0
    """The highest ever granted, so it outlives the lease."""
    lease_id: str | None = None
    """None: nobody can renew it (never granted, released, or revoked by force)."""
    holder: str = ""
    ttl_ns: int = 0
    """0 under a parent: lasts exactly as long as the parent does."""
    expiry_ns: int = 0
    """Closed to others until then, whether or not somebody still holds it."""
    granted_ns: int = 0
    granted_us: int = 0
    renewed_us: int = 0
    renewals: int = 0
    metadata: str = ""
    notify: str = ""
    parent: str | None = None
    parent_token: int = 0
    soft_ns: int = 0
    grace_ns: int = 0
    lock_delay_ns: int = 0
    hold_at_least_ns: int = 0
    ended: str | None = None
    """How the lease with this token ended, where somebody ended it."""
    revoked: bool | int = False
    """It will not be renewed any more."""
    has_children: bool | int = False
    waiting: Waiting | None = None
    state: str = ""
    """What the holder before has handed over to this one."""
    children_ended: int = 0
    """How many leases under this one, at any depth, somebody else has ended."""

    def rare(self) -> str | None:
        """Return what most entries don't have as the text that a store can keep in one field; None: nothing.

        What came later than the first version has keys of its own, which that version passes over.
        """
        waiting = self.waiting
        data: dict[str, object] = {} if waiting is None else _waiting_as_json(waiting)
        if self.state:
            data["s"] = self.state
        if self.children_ended:
            data["e"] = self.children_ended
        if not data:
            return None
        return json.dumps(data if waiting is not None else _NOBODY | data, separators=(",", ":"))

    def take_rare(self, text: str) -> None:
        """Read what `rare` wrote."""
        data = json.loads(text)
        self.waiting = _waiting_from_json(data)
        self.state = data.get("s", "")
        self.children_ended = data.get("e", 0)

    def record(self, now: int, until_ns: int, closed: Closed | None = None) -> Record:
        """Return what people may see of it.

        ``until_ns`` is when the lease ends, parents considered, or when the closed resource opens. Of a lease that is
        over, what only mattered while it was held is left out.
        """
        held = closed is None
        waiting = self.waiting
        queue = waiting.live(now) if waiting else []
        reservation = waiting.reservation if waiting and waiting.reservation else None
        reserved_for = None
        if reservation and reservation.until_ns > now:
            names = [w.holder for w in queue if w.lease_id == reservation.lease_id]
            reserved_for = reservation.successor or (names[0] if names else None)
        return Record(
            resource=self.resource,
            holder=self.holder,
            token=self.token,
            ttl_ns=self.ttl_ns,
            remaining_ns=max(0, until_ns - now),
            granted_us=self.granted_us,
            renewed_us=self.renewed_us,
            renewals=self.renewals,
            metadata=decode_metadata(self.metadata) if held else {},
            parent=(self.parent, self.parent_token) if self.parent is not None and held else None,
            soft_ns=self.soft_ns if held else 0,
            grace_ns=self.grace_ns if held else 0,
            lock_delay_ns=self.lock_delay_ns,
            hold_at_least_ns=self.hold_at_least_ns,
            revoked=held and bool(self.revoked),
            reserved_for=reserved_for,
            queue=tuple(self.contenders(now)),
            closed=closed,
        )

    def contenders(self, now: int) -> list[Contender]:
        """Return who waits for it, as people may see it, in the order of their turns."""
        return [Contender(w.holder, w.since_us, w.priority) for w in self.waiting.live(now)] if self.waiting else []


_NOBODY: dict[str, object] = {"q": [], "r": None, "t": {}}


def _waiting_as_json(waiting: Waiting) -> dict[str, object]:
    reservation = waiting.reservation
    data: dict[str, object] = {
        "q": [[w.lease_id, w.holder, w.notify, w.since_us, w.expiry_ns, int(w.passed)] for w in waiting.queue],
        "r": reservation and [reservation.until_ns, reservation.lease_id, reservation.successor],
        "t": waiting.tombstones,
    }
    priorities = {w.lease_id: w.priority for w in waiting.queue if w.priority}
    if priorities:
        data["p"] = priorities
    if reservation and reservation.state:
        data["h"] = reservation.state
    return data


def _waiting_from_json(data: dict[str, Any]) -> Waiting | None:
    if not (data["q"] or data["r"] or data["t"]):
        return None
    priorities = data.get("p", {})
    reservation = None
    if data["r"]:
        until, lease_id, successor = data["r"]
        reservation = Reservation(until, lease_id, successor, data.get("h", ""))
    return Waiting(
        queue=[Waiter(i, h, n, s, e, bool(p), priorities.get(i, 0)) for i, h, n, s, e, p in data["q"]],
        reservation=reservation,
        tombstones=data["t"],
    )
