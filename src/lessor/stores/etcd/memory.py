"""What a client remembers: shortcuts, all of it. Where it is wrong, a transaction says so, and nothing comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lessor.core.clock import MILLISECOND, SECOND
from lessor.core.ops import RESERVATION_NS, Revoke, Summons

if TYPE_CHECKING:
    from lessor.core.clock import Clock
    from lessor.core.ops import Notice, Op
    from lessor.stores.etcd.layout import KV
    from lessor.stores.etcd.leases import EtcdLease, Leases
    from lessor.stores.etcd.table import Snapshot

MOST: Final = 10_000
SOON_NS: Final = 100 * MILLISECOND
"""When to look again for a lease that is over, and that etcd has not cleared away yet."""
LATE_NS: Final = 3 * SECOND // 2
"""By when etcd has cleared it away."""


Key: TypeAlias = tuple[str, str]
"""A resource, and a lease id."""


def key_of(op: Op) -> Key:
    """Return what an operation is about."""
    return op.resource, "" if isinstance(op, Revoke) else op.lease_id


@dataclass(slots=True)
class Grip:
    """What this client knows of a lease that it was granted itself."""

    resource: str
    modified: int
    """The revision of the last write of its key."""
    token: int
    leases: list[EtcdLease]
    """The etcd leases to keep alive: the key's own and, with a lock delay, that of what comes after it."""
    value: dict[str, Any]
    simple: bool
    """Whether ending it takes nothing but a note."""
    first: KV | None = None
    """The first waiter, as far as was seen. Nobody comes before it but by a priority, so it is, as long as it waits."""
    renewals: int = 0
    renewed_us: int = 0


@dataclass(slots=True)
class Turns:
    """Whose turn it was since this client has seen a resource free."""

    what: object
    """The resource, as it came free, and who was the first then."""
    since_ns: int
    most_ns: int
    """For so long the turns go on before somebody else has to be called: nobody misses one that it didn't hear of."""
    called: str = ""
    """Who was called last, by this client."""


class Memory:
    """What one store remembers. Safe for threads, as each step is one step of a dict."""

    def __init__(self, leases: Leases, clock: Clock) -> None:
        self._leases = leases
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Remember nothing: at the start, and in a forked child, where what there is belongs to the parent."""
        self.grips: dict[Key, Grip] = {}
        """What was granted here."""
        self.called: dict[Key, int] = {}
        """Waiters whose turn it is, and the revision in which the resource came free."""
        self.places: dict[Key, EtcdLease] = {}
        """Waiters, and the etcd leases of their places in the queue."""
        self.free: dict[str, int] = {}
        """Resources that were given back here, and the revision in which that was."""
        self._turns: dict[str, Turns] = {}
        self._ends: dict[int, int] = {}

    def hold(self, key: Key, grip: Grip) -> None:
        """Remember a lease of our own."""
        if len(self.grips) >= MOST:
            now = self._clock.now()
            for old in [i for i, g in self.grips.items() if all(lease.left_ns(now) < 0 for lease in g.leases)]:
                self.grips.pop(old, None)
        self.grips[key] = grip
        self.free.pop(grip.resource, None)

    def freed(self, resource: str, revision: int) -> None:
        """Remember that a resource is free."""
        _make_room(self.free)
        self.free[resource] = revision

    def wrong(self, key: Key) -> None:
        """Forget what has turned out not to be so."""
        self.free.pop(key[0], None)
        self.called.pop(key, None)
        turns = self._turns.get(key[0])
        if turns is not None:
            turns.called = ""  # whoever was to be called with what was refused

    def leave(self, key: Key) -> None:
        """Forget a waiter, and keep its etcd lease for the next one."""
        self.called.pop(key, None)
        place = self.places.pop(key, None)
        if place is not None:
            self._leases.give(place)

    def certain(self, resource: str, lease_id: str, lease: int) -> int:
        """Return for how long an etcd lease lasts that a lease of our own hangs on; 0 where we don't know."""
        grip = self.grips.get((resource, lease_id))
        own = next((x for x in grip.leases if x.id == lease), None) if grip is not None else None
        return max(0, own.left_ns(self._clock.now())) if own is not None else 0

    def free_for(self, snapshot: Snapshot) -> int:
        """Return for how long this client has seen a resource free, and the same one first; as far as turns have begun."""
        if not snapshot.waits:
            return 0
        now = self._clock.now()
        first = snapshot.kept() or next(iter(snapshot.waiters()), None)
        what = (snapshot.modified, first.created if first else 0)
        turns = self._turns.get(snapshot.resource)
        if turns is None or turns.what != what:
            _make_room(self._turns)
            # Who waits for the end of a lease that runs out knows when that is, as does who waits for a successor.
            unheard = snapshot.kv is not None and snapshot.kept() is None
            turns = self._turns[snapshot.resource] = Turns(what, now, RESERVATION_NS if unheard else 2**63)
        return min(now - turns.since_ns, turns.most_ns)

    def calls(self, notice: Notice, now: int) -> bool:
        """Whether it is for this client to call somebody. Of each turn it does so once, and then that turn begins."""
        turns = self._turns.get(notice.resource)
        if turns is None or notice.summons is not Summons.RESERVED:
            return True
        if turns.called == notice.lease_id:
            return False
        gone = min(now - turns.since_ns, turns.most_ns)
        turns.called, turns.since_ns, turns.most_ns = (
            notice.lease_id,
            now - gone,
            max(turns.most_ns, gone + RESERVATION_NS),
        )
        return True

    def ends(self, lease: int, left: tuple[int, int]) -> int:
        """Return when to come for what an etcd lease keeps, by all that was heard of its whole seconds so far."""
        least, most = left
        now = self._clock.now()
        ends = self._ends.get(lease, 0)
        if ends < now + least or ends + LATE_NS < now:
            ends = now + most
        ends = min(ends, now + most)
        _make_room(self._ends)
        self._ends[lease] = ends
        return max(SOON_NS, ends - now)


def _make_room(things: dict[Any, Any]) -> None:
    if len(things) >= MOST:
        things.clear()
