"""The stream of events under a prefix, as an iterator. It can tell that a lease ended, not what its holder did since."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from leasehold.core.clock import SECOND
from leasehold.core.ops import Event
from leasehold.core.watching import Watching

if TYPE_CHECKING:
    from typing import Self

    from leasehold.runtime.engine import Engine

LONGEST_SLEEP = 1.0
"""Seconds between two looks at the state where the store doesn't push, and at whether we are still wanted."""


class Watch:
    """Iterate over it; close it when done. Registered when it is made, so nothing that follows is missed."""

    def __init__(self, engine: Engine, prefix: str) -> None:
        self._engine = engine
        self._prefix = prefix
        self._watching = Watching()
        self._ready: deque[Event] = deque()
        self._closed = False
        self._subscription = engine.store.subscribe(prefix)
        engine.watches.add(self)
        self._resync()
        self._ready.clear()  # what was there before is known, not news

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        """Wait for the next event."""
        while not self._ready:
            if self.ended:
                self.close()
                raise StopIteration
            self.poll(LONGEST_SLEEP)
        return self._ready.popleft()

    @property
    def ended(self) -> bool:
        """Whether the stream, or its client, was closed."""
        return self._closed or self._engine.closed

    def take(self) -> list[Event]:
        """Return the events that are there, without waiting."""
        events = list(self._ready)
        self._ready.clear()
        return events

    def poll(self, seconds: float) -> None:
        """Wait up to that long for events to be there."""
        clock = self._engine.clock
        due = self._watching.next_look()
        if due is not None:
            seconds = min(seconds, max(0, due - clock.now()) / SECOND)
        if self._subscription is None:
            time.sleep(seconds)
            self._resync()
            return
        news = self._subscription.get(seconds)
        now = clock.now()
        if news is None:
            self._resync()
        for event in news or ():
            if isinstance(event, Event):
                self._ready.extend(self._watching.heard(event, now))
        self._look(now)

    def close(self) -> None:
        """End the stream."""
        if not self._closed:
            self._closed = True
            if self._subscription is not None:
                self._subscription.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self, now: int) -> None:
        """Ask about the leases whose time should be over."""
        names = self._watching.due(now)
        if names:
            store, clock = self._engine.store, self._engine.clock
            records = store.read(names, timeout=self._engine.timeout)
            for name, record in zip(names, records, strict=True):
                self._ready.extend(self._watching.looked(name, record, clock.now(), clock.wall_us()))

    def _resync(self) -> None:
        store, clock = self._engine.store, self._engine.clock
        records = store.scan(self._prefix, timeout=self._engine.timeout)
        self._ready.extend(self._watching.resync(records, clock.now(), clock.wall_us()))
