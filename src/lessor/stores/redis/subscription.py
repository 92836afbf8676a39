"""What one client hears from the server: calls to itself and, where it watches, all that happens under a prefix.

The script that calls somebody goes by how many hear it on its own server. So one listens to the master itself, in a
Cluster too, where others would pass the word on; and asks it from time to time whether it still is the master. The
third version of the protocol allows for questions while listening.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hiredis import PushNotification

from lessor.core.clock import SECOND
from lessor.core.ops import Event, EventKind, Notice, Summons
from lessor.errors import StoreUnavailable
from lessor.stores.limit import Limit
from lessor.stores.listening import Listening
from lessor.stores.redis.connection import to_master
from lessor.stores.redis.wire import check, pack

if TYPE_CHECKING:
    from lessor.core.clock import Clock
    from lessor.stores.redis.address import RedisAddress
    from lessor.stores.redis.topology import Topology
    from lessor.stores.redis.wire import Wire

CONNECT_TIMEOUT = 1.0
ASK_EVERY = 2.0
"""Seconds after which the server is asked again whether it is the master; it has as many to answer."""
SUMMONS: dict[str, Summons] = {summons: summons for summons in Summons}


class RedisSubscription(Listening["Wire"]):
    """A connection in subscribed mode."""

    def __init__(self, address: RedisAddress, where: Topology, clock: Clock, keys: str, prefix: str | None) -> None:
        super().__init__(clock, prefix)
        self._server = address
        self._where = where
        self._channels = [f"{keys}n:{self._name}"]
        if prefix is not None:
            self._channels.append(f"{keys}events")
        self._asked_ns = 0
        self._answered = True
        self._begin(StoreUnavailable)

    def _connect(self) -> Wire:
        limit = Limit(self._clock, CONNECT_TIMEOUT)
        wire = to_master(self._server, self._where, limit, protocol=3)
        with wire.opening(limit):
            check(wire.ask(pack("SUBSCRIBE", *self._channels), limit), wire.node)
            for _ in self._channels[1:]:
                check(wire.receive(limit), wire.node)
        self._asked_ns, self._answered = self._clock.now(), True
        return wire

    def _listen(self, wire: Wire, left: float) -> bool:
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
        return False

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
