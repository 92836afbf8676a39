"""The connections of a store, for threads that take turns: the last one used first, and none of which it isn't certain.

Who finds all in use waits for one. It is handed on to those who wait, in the order in which they came, and nobody takes
one ahead of them but renewals, which open one more where there is none. An interrupt may end a call at any line. So the
right to a connection, and whoever waits, are known weakly: with the call, they are gone.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from lessor.core.clock import SECOND
from lessor.errors import StoreUnavailable
from lessor.stores.locks import new_lock, open_gate

if TYPE_CHECKING:
    from lessor.stores.limit import Limit

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


class Waiter(Generic[W]):
    """A thread that waits for a connection, or the right to one."""

    __slots__ = ("__weakref__", "_gate", "got")

    def __init__(self) -> None:
        self.got: W | Slot | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def give(self, what: W | Slot | None) -> None:
        """Let it go on; once."""
        self.got = what
        open_gate(self._gate)

    def is_served(self, seconds: float) -> bool:
        """Wait for that."""
        return self._gate.acquire(timeout=seconds)


class Pool(Generic[W]):
    """Connections to one place. Whoever has taken one puts it back or drops it."""

    def __init__(self, store: str, place: object) -> None:
        self._store = store
        self._place = place
        self._closed = False
        self._lock = new_lock()
        self._queue: deque[weakref.ref[Waiter[W]]] = deque()
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Have no connections: at the start, and in a forked child, where those that there are belong to the parent."""
        while (waiter := self._next()) is not None:
            waiter.give(None)
        self._idle: list[W] = []
        self._slots: weakref.WeakSet[Slot] = weakref.WeakSet()
        self._full = False

    @property
    def exhausted(self) -> bool:
        """Whether somebody who asks now would have to wait: then there is something to share."""
        return bool(self._queue) or (self._full and not self._idle)

    def close(self) -> None:
        """Close all; one that is in use is closed by whoever uses it."""
        self._closed = True
        self._drop_idle()
        with self._lock:
            while (waiter := self._next()) is not None:
                waiter.give(None)

    def _connect(self, limit: Limit) -> W:
        """Return a new connection. Raises errors of ours."""
        raise NotImplementedError

    def _idle_one(self, *, urgent: bool) -> W | None:
        """Return the one that was used last, unless others wait for it."""
        if self._queue and not urgent:
            return None
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _put_back(self, wire: W) -> None:
        self._idle.append(wire)
        # Whoever waits says so before it looks for an idle one a last time, so one of us sees the other.
        if self._queue:
            with self._lock:
                self._serve()
        if self._closed:
            self._drop_idle()

    def _another(self, spoilt: W | None, limit: Limit, *, urgent: bool) -> W:
        """Return a connection that works: an idle one, or a new one."""
        while spoilt is not None:
            self._drop(spoilt)
            spoilt = self._idle_one(urgent=urgent)
            if spoilt is not None and not spoilt.pending(0):
                return spoilt
        slot = self._slot(urgent=urgent)
        if slot is None:
            got = self._wait(limit)
            if not isinstance(got, Slot):
                return got
            slot = got
        try:
            wire = self._connect(limit)
        except BaseException:
            self._give_back(slot)
            raise
        wire.slot = slot
        return wire

    def _slot(self, *, urgent: bool) -> Slot | None:
        """Return the right to one more, if there may be one."""
        with self._lock:
            self._require_open()
            if urgent or (len(self._slots) < CONNECTIONS and not self._queue):
                return self._new_slot()
            return None

    def _wait(self, limit: Limit) -> W | Slot:
        waiter: Waiter[W] = Waiter()
        try:
            with self._lock:
                self._require_open()  # who comes after those were sent home who waited would wait in vain
                self._queue.append(weakref.ref(waiter))
                self._serve()
            try:
                served = waiter.is_served(limit.left())
            except TimeoutError:
                served = False
            if not served:
                text = f"all {CONNECTIONS} connections were in use for {limit.seconds:g} s"
                raise StoreUnavailable(self._store, text)
            got, waiter.got = waiter.got, None
        finally:
            self._leave(waiter)
        if got is None:
            self._require_open()
            raise StoreUnavailable(self._store, "the process was forked meanwhile")
        return got

    def _leave(self, waiter: Waiter[W]) -> None:
        """Wait no more, and hand on what was given in vain."""
        with self._lock:
            with contextlib.suppress(ValueError):
                self._queue.remove(weakref.ref(waiter))
            got, waiter.got = waiter.got, None
        if isinstance(got, Slot):
            self._give_back(got)
        elif got is not None:
            self._put_back(got)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(self._store, f"the store on {self._place} is closed")

    # --- under the lock -------------------------------------------------------------------------------------------

    def _next(self) -> Waiter[W] | None:
        """Take the first one out of the queue who still waits."""
        while self._queue:
            waiter = self._queue.popleft()()
            if waiter is not None:
                return waiter
        return None

    def _serve(self) -> None:
        """Hand out what there is."""
        while self._idle and (waiter := self._next()) is not None:
            try:
                wire = self._idle.pop()
            except IndexError:  # a renewal has taken it
                self._queue.appendleft(weakref.ref(waiter))
                return
            waiter.give(wire)
        while len(self._slots) < CONNECTIONS and (waiter := self._next()) is not None:
            waiter.give(self._new_slot())

    def _new_slot(self) -> Slot:
        slot = Slot()
        self._slots.add(slot)
        self._full = len(self._slots) >= CONNECTIONS
        return slot

    # --- less -----------------------------------------------------------------------------------------------------

    def _drop_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._drop(self._idle.pop())

    def _drop(self, wire: W) -> None:
        slot, wire.slot = wire.slot, None
        wire.close()
        if isinstance(slot, Slot):
            self._give_back(slot)

    def _give_back(self, slot: Slot) -> None:
        with self._lock:
            self._slots.discard(slot)
            self._full = len(self._slots) >= CONNECTIONS
            self._serve()


_all: weakref.WeakSet[Pool[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_all):
        pool.forget()


os.register_at_fork(after_in_child=_after_fork)
