"""What one client hears: calls to itself and, where it watches, all that happens under a prefix.

etcd keeps the history. So after a lost connection it goes on where it was, without missing or repeating anything;
only when that part of the history was compacted meanwhile does it say that it may have missed something.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Final

from lessor.core.clock import SECOND
from lessor.core.ops import Event, EventKind, Notice, Summons
from lessor.errors import LessorError, StoreUnavailable
from lessor.stores.etcd.layout import KV, parse, past
from lessor.stores.etcd.messages import WATCH, decode, inside, number
from lessor.stores.etcd.trouble import NotLoggedIn, explain, silence
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.clock import Clock
    from lessor.stores.etcd.layout import Layout
    from lessor.stores.etcd.members import Members
    from lessor.stores.etcd.memory import Key
    from lessor.stores.etcd.wire import Stream, Wire
    from lessor.stores.hosts import Node

CONNECT_NS: Final = 2 * SECOND
QUIET_NS: Final = 6 * SECOND
"""After so long without a word a sign of life is asked for; more often, etcd doesn't like it."""
DEAD_NS: Final = 10 * SECOND
"""After so long without any the connection is made anew."""
FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 1.0


class Compacted(StoreUnavailable):
    """The history from where we were is gone."""


class EtcdSubscription:
    """A connection with a stream of changes on it."""

    def __init__(
        self, members: Members, layout: Layout, clock: Clock, prefix: str | None, called: Callable[[Key, int], None]
    ) -> None:
        self.address = os.urandom(8).hex()
        self._members = members
        self._clock = clock
        self._called = called
        self._leases = layout.leases
        self._ranges = [layout.notice(self.address)]
        if prefix is not None:
            self._ranges.append(layout.lease(prefix))
        self._next = [0] * len(self._ranges)
        """From which revision on, for each range; 0: from now."""
        self._news: list[Event | Notice] = []
        self._closed = threading.Event()
        self._in_use = new_lock()
        self._pause = FIRST_PAUSE
        self._heard_ns = self._asked_ns = 0
        self._wire: Wire | None = None
        self._stream: Stream
        self._node: Node
        with contextlib.suppress(StoreUnavailable):
            self._connect()  # else it is found by whoever listens; until then waiters come at the known times

    def get(self, timeout: float) -> list[Event | Notice] | None:
        """Return what came; None when part of the history is gone."""
        with self._in_use:
            return self._get(timeout)

    def _get(self, timeout: float) -> list[Event | Notice] | None:
        give_up = self._clock.now() + int(max(timeout, 0) * SECOND)
        while not self._closed.is_set():
            left = max(0.0, (give_up - self._clock.now()) / SECOND)
            try:
                if self._wire is None:
                    fresh = not all(self._next)
                    self._connect()
                    self._pause = FIRST_PAUSE
                    if fresh:
                        return None
                else:
                    self._listen(self._wire, left)
            except Compacted:
                self._lose()
                self._next = [0] * len(self._ranges)
            except (OSError, LessorError):
                self._lose()
                self._closed.wait(min(left, self._pause))
                self._pause = min(2 * self._pause, LONGEST_PAUSE)
            if self._news or self._clock.now() >= give_up:
                break
        news, self._news = self._news, []
        return news

    def close(self) -> None:
        """End it."""
        self._closed.set()
        wire = self._wire
        if wire is not None:
            wire.wake()  # whoever listens finds it ended
        with self._in_use:
            self._lose()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        give_up = self._clock.now() + CONNECT_NS
        login = self._members.login(give_up)
        wire = self._members.connect(give_up)
        self._node = wire.node
        try:
            requests = [self._request(at) for at in range(len(self._ranges))]
            self._stream = wire.call("Watch/Watch", requests, login, give_up, last=False)
            created = 0
            while created < len(self._ranges):
                created += sum(map(self._take, wire.heard(self._stream, give_up)))
        except BaseException as error:
            wire.close()
            if isinstance(error, OSError):
                self._members.avoid(wire.node)
                raise silence(error, wire.node) from None
            if isinstance(error, NotLoggedIn):
                self._members.log_out(login)
            raise
        self._heard_ns = self._clock.now()
        self._wire = wire

    def _request(self, at: int) -> bytes:
        start = self._ranges[at].encode()
        what = inside(1, start) + inside(2, past(start)) + number(3, self._next[at]) + number(7, at + 1)
        return inside(1, what)

    def _listen(self, wire: Wire, left: float) -> None:
        """Take in what is there, or comes within that time."""
        now = self._clock.now()
        quiet = now - self._heard_ns
        if quiet > DEAD_NS:
            raise ConnectionResetError("no sign of life")
        if quiet > QUIET_NS and self._asked_ns < self._heard_ns:
            self._asked_ns = now
            wire.ping(now + CONNECT_NS)
        if wire.pending(min(left, QUIET_NS / SECOND)):
            self._heard_ns = self._clock.now()
            for message in wire.heard(self._stream, self._heard_ns + CONNECT_NS):
                self._take(message)

    def _take(self, message: bytes) -> bool:
        """Take in what was said; return whether it was that the watch has begun."""
        result = decode(WATCH, message)
        at = result["watch_id"] - 1
        if result.get("canceled"):
            if result.get("compact_revision"):
                raise Compacted("etcd", "the history from where the watch was is gone")
            raise explain(result.get("reason", b"").decode(errors="replace") or "the watch ended", self._node)
        revision = result["header"]["revision"]
        for event in result.get("events", ()):
            revision = event["kv"]["mod_revision"]
            if revision >= self._next[at] and not event.get("deleted"):
                self._tell(parse(event["kv"]))
        created = "created" in result
        if not created:
            self._next[at] = max(self._next[at], revision + 1)
        elif not self._next[at]:
            self._next[at] = revision + 1
        return created

    def _tell(self, kv: KV) -> None:
        value = kv.value
        if not kv.key.startswith(self._leases):
            notice = Notice(self.address, Summons(value["summons"]), value["resource"], value["id"])
            if notice.summons is Summons.RESERVED:
                self._called((notice.resource, notice.lease_id), value["freed"] or kv.modified)
            self._news.append(notice)
            return
        resource = kv.key.removeprefix(self._leases)
        holder, token = value["holder"], kv.token
        if value.get("again"):
            return
        if not kv.held:
            closed_ns = value.get("closed_ns", 0)
            self._news.append(Event(EventKind(value["state"]), resource, token, holder, value["at_us"], closed_ns))
        elif "token" not in value:
            event = Event(EventKind.GRANTED, resource, token, holder, value["granted_us"], value["ttl_ns"])
            self._news.append(event)
        elif value.get("news"):
            event = Event(EventKind.REVOKED, resource, token, holder, value["revoked_us"], value["ttl_ns"] or 1)
            self._news.append(event)

    def _lose(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()
