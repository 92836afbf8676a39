"""What one client hears from the server: calls to itself and, where it watches, all that happens under a prefix.

Nothing is kept for a client that isn't connected. It finds its way back by itself, and then says that it may have
missed something.

The script that calls somebody goes by how many hear it on its own server. So one listens to the master itself, in a
Cluster too, where others would pass the word on; and asks it from time to time whether it still is the master. The
third version of the protocol allows for questions while listening.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

from hiredis import PushNotification

from leasehold.core.clock import SECOND
from leasehold.core.ops import Event, EventKind, Notice, Summons
from leasehold.errors import LeaseholdError, StoreUnavailable
from leasehold.stores.doorbell import Doorbell
from leasehold.stores.limit import Limit
from leasehold.stores.redis.connection import to_master
from leasehold.stores.redis.wire import check, pack

if TYPE_CHECKING:
    from leasehold.core.clock import Clock
    from leasehold.stores.redis.address import RedisAddress
    from leasehold.stores.redis.topology import Topology
    from leasehold.stores.redis.wire import Wire

CONNECT_TIMEOUT = 1.0
ASK_EVERY = 2.0
"""Seconds after which the server is asked again whether it is the master; it has as many to answer."""
FIRST_PAUSE = 0.02
LONGEST_PAUSE = 1.0
SUMMONS: dict[str, Summons] = {summons: summons for summons in Summons}


class RedisSubscription:
    """A connection in subscribed mode."""

    def __init__(self, address: RedisAddress, where: Topology, clock: Clock, keys: str, prefix: str | None) -> None:
        self._server = address
        self._where = where
        self._clock = clock
        self._name = os.urandom(8).hex()
        self._prefix = prefix
        self._channels = [f"{keys}n:{self._name}"]
        if prefix is not None:
            self._channels.append(f"{keys}events")
        self._wire: Wire | None = None
        self._news: list[Event | Notice] = []
        self._closed = threading.Event()
        self._doorbell = Doorbell()
        self._rung = False
        self._pause = FIRST_PAUSE
        self._asked_ns = 0
        self._answered = True
        with contextlib.suppress(StoreUnavailable):
            self._connect()  # else it is found by whoever listens; until then waiters come at the known times

    @property
    def address(self) -> str:
        """How operations name this client; nothing while nobody would hear: the store takes that for dead."""
        return self._name if self._wire is not None else ""

    def get(self, timeout: float) -> list[Event | Notice] | None:
        """Return what came; None when the connection was lost in between, and with it what was said meanwhile."""
        try:
            return self._get(timeout)
        except BaseException:
            self._lose()  # what was received, and nobody has been told of, may be lost: an interrupt
            raise

    def _get(self, timeout: float) -> list[Event | Notice] | None:
        give_up = self._clock.now() + int(max(timeout, 0) * SECOND)
        while not self._closed.is_set():
            # What there is already was left by an interrupt.
            left = 0.0 if self._news else max(0.0, (give_up - self._clock.now()) / SECOND)
            wire = self._wire
            if wire is None:
                if self._found_again(left):
                    return None
            else:
                try:
                    self._listen(wire, left)
                except (OSError, LeaseholdError):
                    self._lose()
            if self._news or self._rung or self._clock.now() >= give_up:
                break
        self._rung = False
        if self._closed.is_set():
            self._lose()
        news, self._news = self._news, []
        return news

    def interrupt(self) -> None:
        """Let the ``get`` that is under way, or else the next one, return now."""
        self._doorbell.ring()

    def close(self) -> None:
        """End it."""
        self._closed.set()
        self._doorbell.close()
        wire = self._wire
        if wire is not None:
            with contextlib.suppress(OSError):
                wire.socket.shutdown(socket.SHUT_RDWR)  # wakes the listener up, which finds it closed

    def _connect(self) -> None:
        limit = Limit(self._clock, CONNECT_TIMEOUT)
        wire = to_master(self._server, self._where, limit, protocol=3)
        with wire.opening(limit):
            check(wire.ask(pack("SUBSCRIBE", *self._channels), limit), wire.node)
            for _ in self._channels[1:]:
                check(wire.receive(limit), wire.node)
        self._asked_ns, self._answered = self._clock.now(), True
        self._wire = wire
        self._doorbell.watch(wire.socket.fileno())

    def _found_again(self, left: float) -> bool:
        """Try to connect; where that fails, wait a little."""
        try:
            self._connect()
        except LeaseholdError:  # whatever it is: the store's calls tell it, too
            self._rung = self._doorbell.wait(min(left, self._pause))
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            return False
        self._pause = FIRST_PAUSE
        if self._closed.is_set():
            self._lose()
        return True

    def _listen(self, wire: Wire, left: float) -> None:
        """Take in what is there, or comes within that time."""
        answers = wire.complete()  # what came along with the answer to the subscription
        if not answers:
            if (self._clock.now() - self._asked_ns) / SECOND >= ASK_EVERY and not wire.has_news():
                if not self._answered:
                    raise TimeoutError
                wire.send(self._where.question, Limit(self._clock, ASK_EVERY))
                self._asked_ns, self._answered = self._clock.now(), False
            self._rung = self._doorbell.wait(min(left, ASK_EVERY))
            if self._doorbell.ready:
                answers = wire.take_in()
        for answer in answers:
            self._take(answer, wire)

    def _take(self, answer: Any, wire: Wire) -> None:
        if not isinstance(answer, PushNotification):
            self._answered = True
            self._where.examine(answer, wire.node)
            return
        if answer[0] != "message":
            return
        said = json.loads(answer[2])
        if answer[1] == self._channels[0]:
            summons, resource, lease_id = said
            self._news.append(Notice(self._name, SUMMONS[summons], resource, lease_id))
            return
        for kind, resource, token, holder, at_us, ttl_us in said:
            if resource.startswith(self._prefix or ""):
                event = Event(EventKind(kind), resource, int(token), holder, int(at_us), int(ttl_us) * 1000)
                self._news.append(event)

    def _lose(self) -> None:
        wire = self._wire
        if wire is not None:
            self._doorbell.forget(wire.socket.fileno())  # first of all, or an interrupt would leave it there
            self._wire = None
            wire.close()
