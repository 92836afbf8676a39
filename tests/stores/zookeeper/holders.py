"""Somebody who holds a lease and somebody who waits for it, by one clock."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from leasehold.runtime.clock import SYSTEM
from leasehold.testing.conformance.base import Thread, until

if TYPE_CHECKING:
    from leasehold import Client
    from leasehold.client.sync import Lease

PATIENCE = 60.0


class Holder:
    """Holds a lease, and looks at it all the time, as work would that the lease protects."""

    def __init__(self, client: Client, resource: str, ttl: float) -> None:
        self.client = client
        self.lease: Lease = client.acquire(resource, ttl=ttl)
        self.token = self.lease.token
        self.last_sure_ns = 0
        self.told_ns = 0
        self._enough = threading.Event()
        self.lease.on_lost(self._told)
        self._looking = Thread(self._look)

    def _told(self, _lease: Any) -> None:
        self.told_ns = SYSTEM.host_ns()

    def _look(self) -> None:
        while not self._enough.is_set():
            if self.lease.remaining > 0:
                self.last_sure_ns = SYSTEM.host_ns()
            self._enough.wait(0.001)

    def stop_looking(self) -> None:
        self._enough.set()
        self._looking.result()


class Successor:
    """Waits for the same lease, and notes when it has got it."""

    def __init__(self, client: Client, resource: str, ttl: float) -> None:
        self.client = client
        self._waiting = Thread(lambda: self._wait(resource, ttl))
        until(lambda: bool((record := client.get(resource)) and record.queue), "the waiter")

    def _wait(self, resource: str, ttl: float) -> tuple[Lease, int]:
        lease = self.client.acquire(resource, ttl=ttl)
        return lease, SYSTEM.host_ns()

    @property
    def waits(self) -> bool:
        return self._waiting.is_alive()

    def result(self) -> tuple[Lease, int]:
        """Return the lease, and when it was there."""
        lease, at = self._waiting.result(PATIENCE)
        return lease, at


def hand_over_after_a_loss(holder: Holder, successor: Successor) -> Lease:
    """The one was told, and had stopped, before the other began; with a higher token."""
    newer, began_ns = successor.result()
    holder.stop_looking()
    assert holder.lease.loss is not None
    until(lambda: holder.told_ns > 0, "the word to the holder")
    assert holder.last_sure_ns < began_ns, "two holders"
    assert holder.told_ns < began_ns, "told too late"
    assert newer.token > holder.token
    return newer
