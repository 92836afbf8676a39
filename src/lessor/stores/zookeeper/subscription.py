"""What one client hears: calls to itself and, where it watches, all that happens under a prefix.

ZooKeeper only says that a node has changed, once. So whoever listens goes and looks: at the node by which the client
is called, and at the events since the last one it has seen. Those are kept, so none is missed over a lost connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from lessor.core.clock import SECOND
from lessor.core.ops import Notice, Summons
from lessor.errors import LessorError
from lessor.stores.zookeeper import events
from lessor.stores.zookeeper.events import TIMEOUT
from lessor.stores.zookeeper.layout import sequence
from lessor.stores.zookeeper.wire import (
    ANY_VERSION,
    EPHEMERAL,
    NODE_ERRORS,
    Create,
    Delete,
    GetChildren2,
    GetData,
    Sync,
)

if TYPE_CHECKING:
    from lessor.core.ops import Event
    from lessor.stores.zookeeper.desk import Desk
    from lessor.stores.zookeeper.session import Session

RETRY_NS: Final = SECOND // 5

CALLED: Final = object()
HAPPENED: Final = object()
HEARD: Final = object()
OVER: Final = object()
AWAY: Final = object()


class ZooKeeperSubscription:
    """Looks, whenever it is told that there is something to see."""

    def __init__(self, desk: Desk, prefix: str | None) -> None:
        self._desk = desk
        self._prefix = prefix
        self.address = os.urandom(8).hex()
        self._box = desk.layout.client(self.address)
        self._news: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._closed = False
        self._session_id = 0
        self._box_version = 0
        self._heard: list[Event | Notice] = []
        self._missed = False
        self._last: int | None = None
        """The number of the last event that was seen."""
        desk.callers[self.address] = self._news.put
        with contextlib.suppress(LessorError, KazooException, KazooTimeoutError):
            self._settle()

    def get(self, timeout: float) -> list[Event | Notice] | None:
        """Return what came; None where events were missed."""
        try:
            return self._get(timeout)
        except BaseException:
            # What was seen, and nobody has been told of, may be lost: an interrupt.
            self._missed = True
            self._news.put(KazooState.CONNECTED)
            raise

    def _get(self, timeout: float) -> list[Event | Notice] | None:
        clock = self._desk.clock
        give_up = clock.now() + int(max(timeout, 0) * SECOND)
        while not self._closed:
            try:
                item = self._news.get(timeout=max(0.0, (give_up - clock.now()) / SECOND))
            except queue.Empty:
                break
            if item is AWAY:
                break
            try:
                self._hear(item)
            except (LessorError, KazooException, KazooTimeoutError):
                # What was heard before is kept; what wasn't is looked for again.
                self._desk.timetable.at(clock.now() + RETRY_NS, lambda: self._news.put(KazooState.CONNECTED))
            if self._heard or self._missed:
                break
        heard, self._heard = self._heard, []
        if self._missed:
            self._missed = False
            self._heard = [item for item in heard if isinstance(item, Notice)]
            self._news.put(HEARD)
            return None
        return heard

    def interrupt(self) -> None:
        """Let the ``get`` that is under way, or else the next one, return now."""
        self._news.put(AWAY)

    def close(self) -> None:
        """End it."""
        if self._closed:
            return
        self._closed = True
        self._desk.callers.pop(self.address, None)
        self._news.put(OVER)
        with contextlib.suppress(LessorError, KazooException, KazooTimeoutError):
            main = self._desk.main(0)
            main.call(Delete(self._box, ANY_VERSION))
            if self._prefix is not None:
                events.unwatch(self._desk, main, self.address)

    def _hear(self, item: object) -> None:
        if isinstance(item, Notice):
            self._heard.append(item)
        elif item is CALLED:
            self._called()
        elif item is HAPPENED:
            self._happened()
        elif item == KazooState.CONNECTED:
            self._settle()
            self._called()
            if self._prefix is not None:
                self._happened()

    def _settle(self) -> None:
        """See to it that one can be called, in the session that there is now; and that events are written down."""
        main = self._desk.main_within(TIMEOUT)
        if self._session_id == main.id:
            return
        session_id = main.id
        with contextlib.suppress(*NODE_ERRORS):
            main.call(Create(self._box, b"[]", self._desk.acl, EPHEMERAL)).get(timeout=TIMEOUT)
        self._box_version = 0
        self._called()
        if self._prefix is not None:
            events.watch(self._desk, main, self.address)
            if self._last is None:
                self._happened()
            else:
                self._missed = True  # while nobody knew that we watch, perhaps nothing was written down
        self._session_id = session_id

    # --- calls ----------------------------------------------------------------------------------------------------

    def _called(self) -> None:
        """See which of our leases somebody has revoked, or handed over to us."""
        desk = self._desk
        try:
            data, stat = self._main().call(GetData(self._box, self._on_call)).get(timeout=TIMEOUT)
        except NODE_ERRORS:
            return
        missed = stat.version - self._box_version
        self._box_version = stat.version
        if missed <= 0:
            return
        marks = json.loads(data) if missed == 1 else None
        for summons, ours in (
            (Summons.REVOKED, desk.ledger.all()),
            (Summons.RESERVED, list(desk.bells.waiters.values())),
        ):
            self._heard += [
                Notice(self.address, summons, one.resource, one.lease_id)
                for one in ours
                if one.notify == self.address and (marks is None or one.mark in marks)
            ]

    def _on_call(self, _event: Any) -> None:
        """On kazoo's thread."""
        self._news.put(CALLED)

    # --- events ---------------------------------------------------------------------------------------------------

    def _happened(self) -> None:
        """See what has happened since the last look."""
        main = self._main()
        folder = self._desk.layout.events
        main.call(Sync(folder))
        names, stat = main.call(GetChildren2(folder, self._on_event)).get(timeout=TIMEOUT)
        names.sort(key=sequence)
        # Events are numbered by how many nodes the folder had so far; ZooKeeper shows that together with deletions.
        newest = (stat.children_version + stat.children_count) // 2 - 1
        if self._last is None or newest < self._last:
            self._missed |= self._last is not None  # the servers were put back to older data
            self._last = newest
            return
        fresh = [name for name in names if sequence(name) > self._last]
        calls = [(name, main.call(GetData(f"{folder}/{name}", None))) for name in fresh]
        for name, call in calls:
            try:
                data, stat = call.get(timeout=TIMEOUT)
            except NODE_ERRORS:
                continue  # too old to be kept: the next one shows the gap
            number = sequence(name)
            self._missed |= self._last < number - 1
            self._last = number
            event = events.loads(data, stat)
            if event.resource.startswith(self._prefix or ""):
                self._heard.append(event)

    def _on_event(self, _event: Any) -> None:
        """On kazoo's thread."""
        self._news.put(HAPPENED)

    def _main(self) -> Session:
        return self._desk.main_within(TIMEOUT)
