"""The members of a cluster: who is asked, over which connection, logged in as whom."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lessor.core.clock import MILLISECOND, SECOND
from lessor.errors import LessorError, StoreUnavailable
from lessor.stores.etcd.messages import LOGIN, TRANSACTION, decode, inside
from lessor.stores.etcd.trouble import Elsewhere, NotLoggedIn, silence
from lessor.stores.etcd.wire import Wire
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.clock import Clock
    from lessor.stores.etcd.address import EtcdAddress
    from lessor.stores.hosts import Node

TRUSTED_NS: Final = SECOND // 10
"""A connection that was idle for longer is looked at before it is used: the server may have closed it."""
SHORTEST_TRY_NS: Final = 50 * MILLISECOND
MOST_IDLE: Final = 16
AT_ONCE: Final = 256
"""Calls that are under way on one connection at the same time."""

Call: TypeAlias = tuple[str, list[bytes]]
"""A method, and the messages for it."""


class Members:
    """Asks one member after the other, the one that answered last first. Connections are used by one thread each."""

    def __init__(self, address: EtcdAddress, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._closed = False
        self.count = len(address.nodes)
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Have no connections: at the start, and in a forked child, where those that there are belong to the parent."""
        self._lock = new_lock()
        self._first = 0
        self._idle: list[Wire] = []
        self._login = ""

    def ask(self, calls: Sequence[Call], give_up: int) -> list[list[bytes]]:
        """Make the calls, all at the same time over one connection, and return their answers.

        Raises `Elsewhere` when there is no answer, and then tries another member the next time. It is never sent
        twice unless it is certain that nothing came of the first time.
        """
        for again in (True, False):
            login = self.login(give_up)
            wire = self._connection(give_up)
            try:
                answers = self._exchange(wire, calls, login, self._limit(give_up))
            except OSError as error:
                wire.close()
                self.avoid(wire.node)
                raise silence(error, wire.node) from None
            except NotLoggedIn:
                self._keep(wire)
                self.log_out(login)
                if not again:
                    raise
            except Elsewhere:
                wire.close()
                self.avoid(wire.node)
                raise
            except LessorError:
                self._keep(wire)
                raise
            except BaseException:
                wire.close()
                raise
            else:
                self._keep(wire)
                return answers
        raise AssertionError("it returns or raises")

    def transact(self, request: bytes, give_up: int) -> dict[str, Any]:
        """Make a transaction, and return what came of it."""
        ((answer,),) = self.ask([("KV/Txn", [request])], give_up)
        return decode(TRANSACTION, answer)

    def _exchange(self, wire: Wire, calls: Sequence[Call], login: str, limit: int) -> list[list[bytes]]:
        wire.used_ns = self._clock.now()
        answers: list[list[bytes]] = []
        for at in range(0, len(calls), AT_ONCE):
            part = calls[at : at + AT_ONCE]
            streams = [wire.call(method, messages, login, limit) for method, messages in part]
            answers += wire.finish(streams, limit)
        return answers

    def ask_again(self, calls: Sequence[Call], give_up: int) -> list[list[bytes]]:
        """Ask, where it does no harm to ask twice: other members, if one is silent."""
        for _ in self._address.nodes:
            try:
                return self.ask(calls, give_up)
            except Elsewhere:
                if self._clock.now() >= give_up:
                    raise
        return self.ask(calls, give_up)

    def connect(self, give_up: int) -> Wire:
        """Return a new connection to the first member that can be reached."""
        trouble: Exception | None = None
        for _ in self._address.nodes:
            node = self._address.nodes[self._first % len(self._address.nodes)]
            try:
                return Wire(node, self._address, self._clock, self._limit(give_up))
            except Elsewhere as error:
                trouble = error
                self.avoid(node)
            except TimeoutError as error:
                raise trouble or silence(error, node) from None
        assert trouble is not None
        raise trouble

    def login(self, give_up: int) -> str:
        """Return what stands for user and password; nothing where there are none."""
        address, login = self._address, self._login
        if not address.user or login:
            return login
        wire = self.connect(give_up)
        who = inside(1, address.user.encode()) + inside(2, address.password.encode())
        try:
            ((answer,),) = wire.finish([wire.call("Auth/Authenticate", [who], "", give_up)], give_up)
            self._login = login = decode(LOGIN, answer)["token"].decode()
        except OSError as error:
            self.avoid(wire.node)
            raise silence(error, wire.node) from None
        except StoreUnavailable as error:
            if "authentication is not enabled" not in str(error):
                raise
        finally:
            wire.close()
        return login

    def log_out(self, login: str) -> None:
        """Log in again before the next request, unless somebody has done so since."""
        with self._lock:
            if self._login == login:
                self._login = ""

    def avoid(self, node: Node) -> None:
        """Ask another member from now on, where this one was the first choice."""
        nodes = self._address.nodes
        with self._lock:
            if nodes[self._first % len(nodes)] == node:
                self._first += 1
            stale = [wire for wire in self._idle if wire.node == node]
            self._idle = [wire for wire in self._idle if wire.node != node]
        for wire in stale:
            wire.close()

    def close(self) -> None:
        """Close all; one that is in use is closed by whoever uses it."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _limit(self, give_up: int) -> int:
        """Return until when one member may take: where there are others, they get their chance too."""
        now = self._clock.now()
        if len(self._address.nodes) == 1:
            return give_up
        return now + max((give_up - now) // 2, min(SHORTEST_TRY_NS, give_up - now))

    def _connection(self, give_up: int) -> Wire:
        if self._closed:
            raise StoreUnavailable("etcd", "the store is closed")
        while True:
            with self._lock:
                wire = self._idle.pop() if self._idle else None
            if wire is None:
                return self.connect(give_up)
            if self._clock.now() - wire.used_ns < TRUSTED_NS or wire.usable(give_up):
                return wire
            wire.close()

    def _keep(self, wire: Wire) -> None:
        with self._lock:
            if not (self._closed or wire.leaving) and len(self._idle) < MOST_IDLE:
                self._idle.append(wire)
                return
        wire.close()


_all: weakref.WeakSet[Members] = weakref.WeakSet()


def _after_fork() -> None:
    for members in _all:
        members.forget()


os.register_at_fork(after_in_child=_after_fork)
