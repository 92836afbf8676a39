"""The connections of a store, for threads that take turns: the last one used first, and none of which it isn't certain.

Who finds all in use waits for one, in the order in which they came; renewals don't wait, and open one more. An interrupt
may end a call at any line. So the right to a connection is known weakly: with the call, it is given back.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from leasehold.core.clock import SECOND
from leasehold.errors import StoreUnavailable

if TYPE_CHECKING:
    from leasehold.stores.limit import Limit

CONNECTIONS: Final = 16
"""How many a store opens."""
TRUSTED_NS: Final = SECOND // 10
"""A connection that was idle for longer is looked at before it is used: the server may have closed it."""


class Pooled(Protocol):
    """A connection, as far as the pool is concerned."""

    used_ns: int
    slot: object
    """What lasts as long as this one does."""

    def pending(self, seconds: float) -> bool:
        """Whether there is something to receive, an end included, within that time. In use, that is bad news."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


W = TypeVar("W", bound=Pooled)


class Slot:
    """The right to one connection."""

    __slots__ = ("__weakref__",)


class Pool(Generic[W]):
    """Connections to one place. Whoever has taken one puts it back or drops it."""

    def __init__(self, store: str, place: object) -> None:
        self._store = store
        self._place = place
        self._closed = False
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Have no connections: at the start, and in a forked child, where those that there are belong to the parent."""
        self._idle: list[W] = []
        self._free = threading.Condition()
        self._slots: weakref.WeakSet[object] = weakref.WeakSet()
        self._waiting = 0
        self._full = False

    @property
    def exhausted(self) -> bool:
        """Whether all are in use, or somebody waits for one: then there is something to share."""
        return self._full and (self._waiting > 0 or not self._idle)

    def close(self) -> None:
        """Close all; one that is in use is closed by whoever uses it."""
        self._closed = True
        self._drop_idle()
        with self._free:
            self._free.notify_all()

    def _connect(self, limit: Limit) -> W:
        """Return a new connection. Raises errors of ours."""
        raise NotImplementedError

    def _put_back(self, wire: W) -> None:
        if self._closed:
            self._drop(wire)
            return
        self._idle.append(wire)
        if self._waiting:
            with self._free:
                self._free.notify()

    def _another(self, spoilt: W | None, limit: Limit, *, urgent: bool) -> W:
        """Return a connection that works: an idle one, or a new one."""
        while spoilt is not None:
            self._drop(spoilt)
            try:
                spoilt = self._idle.pop()
            except IndexError:
                break
            if not spoilt.pending(0):
                return spoilt
        with self._free:
            while len(self._slots) >= CONNECTIONS and not urgent and not self._closed:
                self._waiting += 1
                try:
                    self._free.wait(limit.left())
                except TimeoutError:
                    text = f"all {CONNECTIONS} connections were in use for {limit.seconds:g} s"
                    raise StoreUnavailable(self._store, text) from None
                finally:
                    self._waiting -= 1
                if self._idle:
                    return self._idle.pop()
            if self._closed:
                raise StoreUnavailable(self._store, f"the store on {self._place} is closed")
            slot = Slot()
            self._slots.add(slot)
            self._full = len(self._slots) >= CONNECTIONS
        try:
            wire = self._connect(limit)
        except BaseException:
            self._give_back(slot)
            raise
        wire.slot = slot
        return wire

    def _drop_idle(self) -> None:
        while self._idle:
            self._drop(self._idle.pop())

    def _drop(self, wire: W) -> None:
        wire.close()
        self._give_back(wire.slot)

    def _give_back(self, slot: object) -> None:
        with self._free:
            self._slots.discard(slot)
            self._full = False
            self._free.notify()


_all: weakref.WeakSet[Pool[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_all):
        pool.forget()


os.register_at_fork(after_in_child=_after_fork)
