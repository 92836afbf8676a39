"""``etcd://`` and ``etcds://``: leases for all hosts that reach an etcd cluster.

It can't free a resource at the very moment when a lease expires: etcd looks for that twice a second. Nor does it know
of tokens that were granted by a cluster that it was restored in place of, unless a client does.

A lease is a key on an etcd lease, which etcd itself ends; its token is the revision of the grant's own write.
Decisions are made by the rules, on what was read, and written if nothing has changed since.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import TYPE_CHECKING

from lessor.core.clock import SECOND
from lessor.core.timing import SLEWED_DRIFT
from lessor.errors import LessorError
from lessor.stores.base import Capability, Guarantees
from lessor.stores.etcd.address import EtcdAddress
from lessor.stores.etcd.engine import Engine
from lessor.stores.etcd.layout import Layout
from lessor.stores.etcd.leases import Leases
from lessor.stores.etcd.memory import Memory
from lessor.stores.etcd.reading import Reading
from lessor.stores.etcd.subscription import EtcdSubscription
from lessor.stores.gathering import Gathering

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lessor.core.clock import Clock
    from lessor.core.lease import Contender, Record
    from lessor.core.ops import Op, Outcome
    from lessor.stores.base import StoreURL

CLOSING_NS = SECOND


class EtcdStore:
    """Leases on one cluster."""

    guarantees = Guarantees(
        store="etcd",
        clock="the etcd leader's monotonic clock; in whole seconds, 2 at least, rounded up",
        drift=SLEWED_DRIFT,
        tokens="the revision of the grant; increase while the cluster keeps its data, and beyond that above what the client has seen",
        failover="grants and tokens survive the loss of a minority; a new leader gives each lease its full time again",
        waiting_order="strict",
        platforms="etcd 3.4 or newer",
        capabilities=(
            Capability.CROSS_PROCESS
            | Capability.CROSS_HOST
            | Capability.DURABLE
            | Capability.PUSH
            | Capability.WATCH
            | Capability.GRACE
            | Capability.PATTERNS
            | Capability.DELAY_SHOWN
        ),
        not_promised=(
            "that a resource is free at the moment of the expiry: about half a second later at most, or after a new "
            "leader's full time; tokens above those of a cluster that was restored from a snapshot, to clients that "
            "have seen none; a soft limit more exact than the hosts' wall clocks agree"
        ),
        min_ttl_ns=SECOND,
    )

    def __init__(self, url: StoreURL, clock: Clock) -> None:
        from lessor.stores.etcd.members import Members  # noqa: PLC0415 - needs hpack, and what is declared doesn't

        address = EtcdAddress(url)
        self.url = address.url
        self._clock = clock
        self._layout = Layout(url.namespace)
        self._members = Members(address, clock)
        self._leases = Leases(self._members, clock)
        self._memory = Memory(self._leases, clock)
        self._engine = Engine(self._members, self._leases, self._layout, self._memory, clock)
        self._gathering = Gathering("etcd", self._engine.apply, clock)
        self._reading = Reading(self._members, self._leases, self._layout, clock)
        _all.add(self)

    def __repr__(self) -> str:
        return f"<EtcdStore {self.url}>"

    def apply(self, ops: Sequence[Op], *, timeout: float) -> list[Outcome]:
        """Carry out the operations: in one round trip, where they are undisputed."""
        return self._gathering.apply(ops, self._give_up(timeout)) if ops else []

    def read(self, resources: Sequence[str], *, timeout: float) -> list[Record | None]:
        """Return who holds what."""
        found = self._reading.records(resources, self._memory.grips, self._give_up(timeout)) if resources else {}
        return [found.get(name) for name in resources]

    def scan(self, prefix: str, *, timeout: float) -> Iterator[Record]:
        """Return all live leases under the prefix."""
        give_up = self._give_up(timeout)
        names = self._reading.names(prefix, give_up)
        found = self._reading.records(names, self._memory.grips, give_up)
        return iter(sorted(found.values(), key=lambda record: record.resource))

    def waiters(self, resource: str, *, timeout: float) -> list[Contender]:
        """Return who waits for the resource."""
        return self._reading.waiters(resource, self._give_up(timeout))

    def subscribe(self, prefix: str | None = None) -> EtcdSubscription:
        """Be told, over a connection of its own."""
        return EtcdSubscription(self._members, self._layout, self._clock, prefix, self._memory.called.__setitem__)

    def close(self) -> None:
        """End the etcd leases that nothing hangs on, and close the connections."""
        with contextlib.suppress(LessorError):
            self._leases.close(self._clock.now() + CLOSING_NS)
        self._members.close()

    def forget(self) -> None:
        """In a forked child: what there is belongs to the parent."""
        self._leases.forget()
        self._memory.forget()

    def _give_up(self, timeout: float) -> int:
        return self._clock.now() + int(timeout * SECOND)


_all: weakref.WeakSet[EtcdStore] = weakref.WeakSet()


def _after_fork() -> None:
    for store in _all:
        store.forget()


os.register_at_fork(after_in_child=_after_fork)
