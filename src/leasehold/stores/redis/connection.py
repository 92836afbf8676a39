"""The connections of a store: one request, one answer, and none is used again of which that isn't certain."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

from leasehold.core.clock import SECOND
from leasehold.errors import StoreUnavailable
from leasehold.stores.redis.inspection import Inspection
from leasehold.stores.redis.trouble import Elsewhere, leads_elsewhere
from leasehold.stores.redis.wire import Wire, refusal, silence

if TYPE_CHECKING:
    from leasehold.errors import LeaseholdError
    from leasehold.stores.hosts import Node
    from leasehold.stores.redis.address import RedisAddress
    from leasehold.stores.redis.limit import Limit
    from leasehold.stores.redis.topology import Topology

CONNECTIONS: Final = 16
"""How many a store opens; who finds all in use waits for one."""
HOPS: Final = 3
"""How many servers are tried for one request, where one leads to the next."""
TRUSTED_NS: Final = SECOND // 10
"""A connection that was idle for longer is looked at before it is used: the server may have closed it."""


def to_master(address: RedisAddress, where: Topology, limit: Limit, *, protocol: int = 2) -> Wire:
    """Return a new connection to the server that is in charge now, which was asked whether it is."""
    for hops_left in reversed(range(HOPS)):
        node = where.find(limit)
        try:
            wire = Wire(node, address.login, limit, protocol=protocol)
            with wire.opening(limit):
                where.examine(wire.ask(where.question, limit), node)
        except Elsewhere:
            if not hops_left:
                raise
        except StoreUnavailable:
            if not (where.doubt() and hops_left):
                raise
        else:
            return wire
    raise AssertionError("it returns or raises")


class Slot:
    """The right to one connection. Its pool knows it weakly: an interrupt may end a call at any line, and it with that."""

    __slots__ = ("__weakref__",)


class Connections:
    """Those to the master, the last one used first."""

    def __init__(self, address: RedisAddress, where: Topology) -> None:
        self._address = address
        self._where = where
        self._inspection = Inspection(address)
        self._closed = False
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Have no connections: at the start, and in a forked child, where those that there are belong to the parent."""
        self._idle: list[Wire] = []
        self._free = threading.Condition()
        self._slots: weakref.WeakSet[object] = weakref.WeakSet()
        self._waiting = 0
        self._full = False

    @property
    def exhausted(self) -> bool:
        """Whether all are in use, or somebody waits for one: then there is something to share."""
        return self._full and (self._waiting > 0 or not self._idle)

    def ask(self, request: bytes, limit: Limit, *, answers: int = 1, urgent: bool = False) -> Any:
        """Send a request over some connection, and return the answer, or a list of several.

        Raises errors of ours; of several answers, only the first one's refusal. It is never sent twice: what became
        of one without an answer isn't known here.
        """
        idle = self._idle
        try:
            wire = idle.pop()
        except IndexError:
            wire = None
        now = limit.began_ns
        if wire is None or (now - wire.used_ns > TRUSTED_NS and wire.pending(0)):
            wire = self._another(wire, limit, urgent=urgent)
        wire.used_ns = now
        try:
            answer = wire.ask(request, limit)
            if answers > 1:
                answer = [answer, *(wire.receive(limit) for _ in range(answers - 1))]
        except OSError as error:
            self._drop(wire)
            self.renew()
            raise silence(error, wire.node, limit) from None
        except BaseException:
            self._drop(wire)
            raise
        if self._closed:
            self._drop(wire)
        else:
            idle.append(wire)
            if self._waiting:
                with self._free:
                    self._free.notify()
        if type(answer) is list and answers == 1:
            return answer
        if text := refusal(answer if answers == 1 else answer[0]):
            raise self._refused(text, wire.node)
        return answer

    def renew(self) -> None:
        """Close what is idle, since another server may be in charge now."""
        self._where.doubt()
        self._drop_idle()

    def close(self) -> None:
        """Close all; one that is in use is closed by whoever uses it."""
        self._closed = True
        self._drop_idle()
        with self._free:
            self._free.notify_all()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _refused(self, text: str, node: Node) -> LeaseholdError:
        error = self._where.refused(text, node)
        if isinstance(error, Elsewhere):
            self._drop_idle()
        elif leads_elsewhere(text):
            self.renew()
        return error

    def _another(self, spoilt: Wire | None, limit: Limit, *, urgent: bool) -> Wire:
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
                    raise StoreUnavailable("redis", text) from None
                finally:
                    self._waiting -= 1
                if self._idle:
                    return self._idle.pop()
            if self._closed:
                raise StoreUnavailable("redis", f"the store on {self._address} is closed")
            slot = Slot()
            self._slots.add(slot)
            self._full = len(self._slots) >= CONNECTIONS
        try:
            return self._connect(slot, limit)
        except BaseException:
            self._give_back(slot)
            raise

    def _connect(self, slot: Slot, limit: Limit) -> Wire:
        wire = to_master(self._address, self._where, limit)
        wire.slot = slot
        with wire.opening(limit):
            self._inspection.of(wire, limit)
        return wire

    def _drop_idle(self) -> None:
        while self._idle:
            self._drop(self._idle.pop())

    def _drop(self, wire: Wire) -> None:
        wire.close()
        self._give_back(wire.slot)

    def _give_back(self, slot: object) -> None:
        with self._free:
            self._slots.discard(slot)
            self._full = False
            self._free.notify()


_all: weakref.WeakSet[Connections] = weakref.WeakSet()


def _after_fork() -> None:
    for connections in list(_all):
        connections.forget()


os.register_at_fork(after_in_child=_after_fork)
