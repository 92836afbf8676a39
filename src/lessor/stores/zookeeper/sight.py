"""What is seen of a resource: its lease, the queue, and what has become of a lease id."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from lessor.core.clock import SECOND
from lessor.core.lease import Closed
from lessor.stores.zookeeper.layout import priority_of, sequence
from lessor.stores.zookeeper.wire import ANY_VERSION, Delete, Exists, GetChildren2, GetData, Sync

if TYPE_CHECKING:
    from collections.abc import Generator

    from lessor.stores.zookeeper.desk import Desk
    from lessor.stores.zookeeper.ledger import Holding
    from lessor.stores.zookeeper.session import Session


AS_LONG_AS_ITS_PARENT_NS = SECOND
"""What is said of another client's lease that has no time of its own: while its node is there, it is held."""


class Seen(NamedTuple):
    """A lease's node."""

    node: dict[str, Any]
    stat: Any

    @property
    def mark(self) -> str:
        """The hash of its lease id."""
        return str(self.node["id"])

    @property
    def holder(self) -> str:
        """Who has it."""
        return str(self.node["holder"])

    @property
    def token(self) -> int:
        """The zxid of the grant and, in a namespace that was set up anew, a bit more."""
        return int(self.stat.czxid) + int(self.node.get("offset", 0))

    @property
    def ttl_ns(self) -> int:
        """For how long it was asked."""
        return int(self.node["ttl"])

    @property
    def is_closed(self) -> bool:
        """Whether nobody holds it, and it is only not free yet."""
        return "closed" in self.node

    def is_for(self, mark: str, holder: str) -> bool:
        """Whether it was handed over to this waiter or, if none had the successor's name, to a holder of this name."""
        heir = self.node.get("heir")
        return self.is_closed and (mark == heir if heir else holder == self.node.get("successor"))

    def is_overdue(self, wall_us: int) -> bool:
        """Whether it is held beyond its soft limit, by the wall clocks of two hosts, and nobody has ended it yet."""
        soft = self.node.get("soft", 0)
        return 0 < soft <= (wall_us - self.node["granted"]) * 1000 and not (self.is_closed or self.node.get("revoked"))


class Identity(NamedTuple):
    """The node of a lease id."""

    said: dict[str, Any]
    version: int

    @property
    def is_tombstone(self) -> bool:
        """Whether it was abandoned."""
        return "tombstone" in self.said

    @property
    def is_closed(self) -> bool:
        """Whether it was released, and the resource is kept for somebody, or closed for a while."""
        return "closed" in self.said

    @property
    def is_spent(self) -> bool:
        """Whether there is no lease to it any more."""
        return self.is_tombstone or "forced" in self.said


class Sight(NamedTuple):
    """All that was seen of a resource, by one session, one after the other."""

    lease: Seen | None
    waiters: list[str]
    queue_version: int | None
    """Of the queue's node: changed by those who may come before others. None: there is no queue."""
    identity: Identity | None

    @property
    def heir_is_gone(self) -> bool:
        """Whether it was handed over to a waiter that has left the queue since."""
        heir = self.lease.node.get("heir") if self.lease is not None else None
        return heir is not None and not any(name.startswith(heir) for name in self.waiters)

    def holds(self, mark: str) -> bool:
        """Whether the lease is that of this id."""
        own = self.identity
        return own is not None and not own.is_spent and self.lease is not None and self.lease.mark == mark

    def is_torn(self, mark: str) -> bool:
        """Whether something happened between the looks: an id's node comes and goes together with its lease's."""
        return self.identity is not None and not self.identity.is_spent and not self.holds(mark)


def seen(answer: Any) -> Seen | None:
    """Return the lease that the answer shows; None if there is none."""
    return None if isinstance(answer, Exception) else Seen(json.loads(answer[0]), answer[1])


def identity(answer: Any) -> Identity | None:
    """Return the lease id's node that the answer shows."""
    return None if isinstance(answer, Exception) else Identity(json.loads(answer[0] or b"{}"), answer[1].version)


def in_order(answer: Any) -> list[str]:
    """Return the names of the waiters, by priority and as they came."""
    return (
        [] if isinstance(answer, Exception) else sorted(answer, key=lambda name: (-priority_of(name), sequence(name)))
    )


def look(
    desk: Desk, session: Session, resource: str, mark: str, *, fresh: bool
) -> Generator[list[Any], list[Any], Sight]:
    """Look at a resource. ``fresh``: the session has just written, so its server is up to date as of then."""
    layout = desk.layout
    calls = [] if fresh else [session.call(Sync(layout.root))]
    calls += [
        session.call(GetData(layout.lease(resource), None)),
        session.call(GetChildren2(layout.queue(resource), None)),
        session.call(GetData(layout.id(mark), None)),
    ]
    *_, lease, queue, own = yield calls
    names, version = ([], None) if isinstance(queue, Exception) else (queue[0], queue[1].version)
    return Sight(seen(lease), in_order(names), version, identity(own))


def deletion(desk: Desk, resource: str, mark: str, version: int) -> tuple[Any, ...]:
    """Return the operations that end a lease, and no other one on the resource.

    As long as the id's node has the version that was seen, the lease's node is that of this id.
    """
    return Delete(desk.layout.id(mark), version), Delete(desk.layout.lease(resource), ANY_VERSION)


def own_holding(desk: Desk, lease: Seen) -> Holding | None:
    """Return what we know about the lease ourselves, where it is ours."""
    holding = desk.ledger.by_mark.get(lease.mark)
    return holding if holding is not None and holding.session_id == lease.stat.ephemeralOwner else None


def closed_for_ns(desk: Desk, lease: Seen, now: int) -> int:
    """Return for how long others are kept out at most: exactly for our own, by what was promised for others'."""
    holding = own_holding(desk, lease)
    if holding is not None:
        left = max(0, holding.free_ns() - now)
        # Somebody may have opened it, for the successor to whom it was handed over.
        return min(left, int(lease.node["closed"])) if lease.is_closed else left
    return int(lease.node["closed"]) if lease.is_closed else lease.ttl_ns or AS_LONG_AS_ITS_PARENT_NS


def held_for_ns(desk: Desk, lease: Seen, now: int) -> int:
    """Return for how long it is held at most unless renewed; 0 if it isn't."""
    if lease.is_closed:
        return 0
    holding = own_holding(desk, lease)
    if holding is not None:
        return max(0, holding.until_ns() - now) if holding.ended is None else 0
    return lease.ttl_ns or AS_LONG_AS_ITS_PARENT_NS


def closed_by(desk: Desk, lease: Seen, now: int) -> tuple[Closed | None, int]:
    """Return what keeps everybody out of a resource that nobody holds, and for how long at most.

    That a lease has expired, and its lock delay follows, only its own client knows.
    """
    if lease.is_closed:
        left = closed_for_ns(desk, lease, now) - int(lease.node.get("reserve", 0))
        return (Closed.HOLD_AT_LEAST, left) if left > 0 else (None, 0)
    holding = own_holding(desk, lease)
    if holding is None or holding.ended is not None or not holding.until_ns() <= now < holding.free_ns():
        return None, 0
    return Closed.LOCK_DELAY, holding.free_ns() - now


def parent_is_gone(desk: Desk, session: Session, lease: Seen) -> Generator[list[Any], list[Any], bool]:
    """Whether the lease stood under one that is over; then so is it."""
    parent = lease.node.get("parent")
    if parent is None or own_holding(desk, lease) is not None:
        return False
    [found] = yield [session.call(Exists(desk.layout.id(parent[2]), None))]
    return found is None
