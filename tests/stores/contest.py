"""A holder and a rival about one resource while servers break: who believes what, and when, by the host's clock."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from lessor import Client
from lessor.core.holder import State
from lessor.errors import StoreUnavailable
from lessor.runtime.clock import SYSTEM
from lessor.testing.conformance.base import Thread, until

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from lessor.client.lease import Lease

PATIENCE = 60.0
RESOURCE = "job"


class Contest:
    """The holder looks at its lease all the time, as work would that the lease protects; the rival waits in the queue.

    A third one asks the servers that the rival knows, all the time, whether the lease is still there.
    """

    def __init__(self, holder_url: str, rival_url: str, ttl: float, timeout: float = 3) -> None:
        self.ttl = ttl
        self.holder = Client(holder_url, holder="holder", timeout=timeout)
        self.rival = Client(rival_url, holder="rival", timeout=timeout)
        self._observer = Client(rival_url, holder="observer", timeout=timeout)
        self.believed_ns = 0
        """When the holder last found its lease safe."""
        self.told_ns = 0
        """When it was told that it is lost."""
        self.there_ns = 0
        """A moment, the last one that is known, at which the servers had not freed the resource yet."""
        self._enough = threading.Event()

    def __enter__(self) -> Self:
        self.lease: Lease = self.holder.acquire(RESOURCE, ttl=self.ttl)
        self.lease.on_lost(self._told)
        self._waiting = Thread(self._wait)
        until(self._has_waiter, "the waiter")
        self._threads = [Thread(self._look), Thread(self._observe)]
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        for client in (self.holder, self.rival, self._observer):
            client.close()

    def _stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.result(PATIENCE)

    # --- what the three do ----------------------------------------------------------------------------------------

    def _told(self, _lease: Any) -> None:
        self.told_ns = SYSTEM.host_ns()

    def _look(self) -> None:
        while not self._enough.wait(0.001):
            now = SYSTEM.host_ns()
            if self.lease.state is not State.LOST and self.lease.remaining > 0:
                self.believed_ns = now

    def _observe(self) -> None:
        while not self._enough.wait(0.005):
            now = SYSTEM.host_ns()
            with contextlib.suppress(StoreUnavailable):
                record = self._observer.get(RESOURCE)
                if record is not None and record.token == self.lease.token:
                    self.there_ns = now

    def _wait(self) -> tuple[Lease, int]:
        lease = self._persistently(lambda: self.rival.acquire(RESOURCE, ttl=self.ttl, wait=PATIENCE))
        return lease, SYSTEM.host_ns()

    def _has_waiter(self) -> bool:
        record = self._observer.get(RESOURCE)
        return bool(record and record.queue)

    @staticmethod
    def _persistently(acquire: Callable[[], Lease]) -> Lease:
        """Go on with the same client while the servers have not found each other yet."""
        got: list[Lease] = []

        def acquired() -> bool:
            with contextlib.suppress(StoreUnavailable):
                got.append(acquire())
            return bool(got)

        until(acquired, "a lease", PATIENCE)
        return got[0]

    # --- what must be so ------------------------------------------------------------------------------------------

    def is_kept(self) -> None:
        """It has been the holder's all the while, and goes on to be renewed."""

        def renewals() -> int:
            with contextlib.suppress(StoreUnavailable):
                record = self.holder.get(RESOURCE)
                assert record is not None
                return record.renewals
            return -1

        until(lambda: renewals() >= 0, "an answer", PATIENCE)
        before = renewals()
        until(lambda: renewals() > before, "a renewal", PATIENCE)
        until(lambda: self.lease.state is State.HELD, "safety", PATIENCE)
        assert not self.told_ns
        assert self._waiting.is_alive()

    def is_lost_in_time(self) -> Lease:
        """The holder had stopped before the rival got it, and was told."""
        newer, began_ns = self._waiting.result(PATIENCE)
        assert self.lease.state is State.LOST
        assert 0 < self.believed_ns < began_ns, "two holders at once"
        assert 0 < self.there_ns < began_ns
        until(
            lambda: self.told_ns > 0, "the word to the holder", PATIENCE
        )  # its thread may get no processor for a while
        return self._newer(newer)

    def is_handed_over(self) -> Lease:
        """The holder gives it back, and the rival gets it."""
        self.lease.release()
        newer, began_ns = self._waiting.result(PATIENCE)
        assert 0 < self.believed_ns < began_ns, "two holders at once"
        return self._newer(newer)

    def _newer(self, newer: Lease) -> Lease:
        assert newer.token > self.lease.token
        return newer

    def goes_on(self, newer: Lease) -> None:
        """Everybody goes on with the client that it has. What the rival got may be over: servers came back meanwhile."""
        newer.release()
        again = self._persistently(lambda: self.holder.acquire(RESOURCE, ttl=self.ttl, wait=PATIENCE))
        assert again.token > newer.token
        again.check()
        again.release()
        last = self._persistently(lambda: self.rival.acquire(RESOURCE, ttl=self.ttl, wait=PATIENCE))
        assert last.token > again.token
        last.release()
