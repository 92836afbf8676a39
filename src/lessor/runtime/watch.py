"""The stream of events under a prefix, as an iterator. It can tell that a lease ended, not what its holder did since."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lessor.core.clock import SECOND
from lessor.core.ops import Event
from lessor.core.watching import Watching
from lessor.errors import LessorError
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from typing import Self

    from lessor.core import view
    from lessor.runtime.engine import Engine
    from lessor.stores.base import Subscription

LONGEST_SLEEP = 1.0
"""Seconds between two looks at the state where the store doesn't push, and at whether we are still wanted."""


class Watch:
    """Iterate over it; close it when done.

    It can't promise every event. While the connection to the store is lost, or the watcher falls too far behind, and
    all the time where the store doesn't push, it only compares what is held with what was: then a lease that came and
    went is not told of, and one that was released or revoked is told of as expired. `gaps` says how often that was so;
    while it stays the same, nothing is missed.
    """

    def __init__(self, engine: Engine, prefix: str) -> None:
        self.gaps = 0
        """How often something may have been missed. Raised before what was found out by comparing is told."""
        self._engine = engine
        self._prefix = prefix
        self._watching = Watching()
        self._ready: deque[Event] = deque()
        self.opened = self._closed = False
        self._polling = new_lock()
        self._subscription: Subscription | None = None

    def open(self) -> Self:
        """Register with the store. What fails may be tried again."""
        with self._polling:
            if self.opened or self._closed:
                return self
            self._subscription = self._engine.store.subscribe(self._prefix)
            self._engine.watches.add(self)
            try:
                self._resync()
            except BaseException:
                self._sign_off()
                raise
            self._ready.clear()  # what was there before is known, not news
            self.opened = True
        if self.ended:  # meanwhile, when there was nothing to sign off yet
            self._sign_off()
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> view.Event:
        """Wait for the next event."""
        while (event := self.take()) is None:
            if self.ended:
                self.close()
                raise StopIteration
            self.poll(LONGEST_SLEEP)
        return event

    @property
    def ended(self) -> bool:
        """Whether the stream, or its client, was closed."""
        return self._closed or self._engine.closed

    def take(self) -> view.Event | None:
        """Return the next event if it is there, without waiting."""
        try:
            return self._ready.popleft().as_view()
        except IndexError:
            return None

    def poll(self, seconds: float) -> None:
        """Wait up to that long for events to be there."""
        with self._polling:
            if self._ready or self.ended:
                return
            try:
                self._poll(seconds)
            except LessorError:
                if not self.ended:
                    raise

    def _poll(self, seconds: float) -> None:
        clock = self._engine.clock
        due = self._watching.next_look()
        if due is not None:
            seconds = min(seconds, max(0, due - clock.now()) / SECOND)
        if self._subscription is None:
            self._engine.host.sleep(seconds)
            self._catch_up()
            return
        self._hear(seconds)
        names = self._watching.due(clock.now())
        if names:
            # What time has done to these. Events that came before the answer count before it, so they go first.
            records = self._engine.store.read(names, timeout=self._engine.timeout)
            self._hear(0)
            for name, record in zip(names, records, strict=True):
                if name in self._watching.due(clock.now()):
                    self._ready.extend(self._watching.looked(name, record, clock.now(), clock.wall_us()))

    def _hear(self, seconds: float) -> None:
        assert self._subscription is not None
        news = self._subscription.get(seconds)
        if news is None:
            self._catch_up()
        for event in news or ():
            if isinstance(event, Event):
                self._ready.extend(self._watching.heard(event, self._engine.clock.now()))

    def close(self) -> None:
        """End the stream."""
        if not self._closed:
            self._closed = True
            self._sign_off()

    def abandon(self) -> None:
        """In a forked child: it is the parent's, so it ends here without a word to the store."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sign_off(self) -> None:
        try:
            self._engine.watches.remove(self)
        except KeyError:  # not open yet, or not any more
            return
        if self._subscription is not None:
            self._subscription.close()

    def _catch_up(self) -> None:
        self.gaps += 1
        self._resync()

    def _resync(self) -> None:
        store, clock = self._engine.store, self._engine.clock
        records = store.scan(self._prefix, timeout=self._engine.timeout)
        self._ready.extend(self._watching.resync(records, clock.now(), clock.wall_us()))
