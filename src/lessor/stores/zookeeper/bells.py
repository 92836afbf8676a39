"""The waiters of this client: their nodes, and the one node that each of them watches.

A waiter watches the one before it in the queue, and the first one the lease; so when something ends, one is woken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lessor.stores.locks import new_lock
from lessor.stores.zookeeper.wire import ANY_VERSION, Delete, GetData, RemoveWatches

if TYPE_CHECKING:
    from lessor.stores.zookeeper.desk import Desk
    from lessor.stores.zookeeper.session import Session


@dataclass(slots=True, eq=False)
class Waiter:
    """One that waits, and where."""

    resource: str
    lease_id: str
    mark: str
    notify: str
    shown_ns: int
    """When it last said that it lives."""
    name: str = ""
    """Of its node in the queue; empty while that isn't known."""
    watching: str = ""
    """The path that it watches."""
    is_first: bool = False
    """Whether nobody is before it in the queue: so it stays, while the queue's node has the same version."""
    queue_version: int = 0
    was_called: bool = False
    """Whether what it watched has changed since it asked last."""


class Bells:
    """Who is woken by what."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.waiters: dict[str, Waiter] = {}
        self._watched: dict[str, set[Waiter]] = {}
        self._ringers: dict[str, Any] = {}
        self._lock = new_lock()

    def watch(self, session: Session, waiter: Waiter, path: str) -> Any:
        """Wake the waiter when this node changes or goes; returns the call that says whether it is there at all."""
        with self._lock:
            self._unhang(session, waiter)
            waiter.watching = path
            self._watched.setdefault(path, set()).add(waiter)
            # The same function for all: kazoo keeps a set of them, and calls each once.
            ringer = self._ringers.setdefault(path, lambda _event: self._ring(path))
            return session.call(GetData(path, ringer))

    def unwatch(self, session: Session, waiter: Waiter) -> None:
        """Let the waiter watch nothing."""
        with self._lock:
            self._unhang(session, waiter)

    def leave(self, session: Session, lease_id: str) -> None:
        """Expect this waiter no more, if it is one."""
        waiter = self.waiters.pop(lease_id, None)
        if waiter is not None:
            self.unwatch(session, waiter)

    def remove(self, session: Session, waiter: Waiter) -> None:
        """Take the node of a waiter that gave no sign of life out of the queue, without waiting for the answer."""
        self.leave(session, waiter.lease_id)
        if waiter.name:
            queue = self._desk.layout.queue(waiter.resource)
            session.call(Delete(f"{queue}/{waiter.name}", ANY_VERSION))
            session.call(Delete(queue, ANY_VERSION))

    def all_may_ring(self, *, lost: bool) -> None:
        """Wake everybody: the connection was lost, and with it whatever was said meanwhile."""
        with self._lock:
            self._watched.clear()
            self._ringers.clear()
            waiters = list(self.waiters.values())
        for waiter in waiters:
            waiter.watching = ""
            if lost:
                waiter.name, waiter.is_first = "", False
            self._desk.call_waiter(waiter.notify, waiter.resource, waiter.lease_id)

    def _unhang(self, session: Session, waiter: Waiter) -> None:
        """Under the lock: take the waiter off the node that it watches; and where it was the last one, the watch."""
        path, waiter.watching = waiter.watching, ""
        hanging = self._watched.get(path)
        if hanging is None:
            return
        hanging.discard(waiter)
        if not hanging:
            del self._watched[path]
            self._ringers.pop(path, None)
            session.forget_watch(path)
            session.call(RemoveWatches(path))

    def _ring(self, path: str) -> None:
        """On kazoo's thread: the node has changed."""
        with self._lock:
            self._ringers.pop(path, None)
            waiters = self._watched.pop(path, set())
        for waiter in waiters:
            waiter.watching = ""
            waiter.was_called = True
            self._desk.call_waiter(waiter.notify, waiter.resource, waiter.lease_id)
