"""Who reads what the store pushes to a client.

As a rule that is a thread of its own. A thread that waits for a call reads in its place, where the store lets it be
interrupted: so a call reaches it directly, and not by way of another thread, which takes as long as a round trip.
Of several, one reads and wakes the others. When it leaves, the thread of its own lingers before it reads again: in a
program that waits again and again, to change places takes longer than all the rest.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from lessor.core.clock import SECOND
from lessor.runtime.log import log
from lessor.stores.base import Interruptible
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.ops import Event, Notice
    from lessor.runtime.host import Host
    from lessor.stores.base import Subscription

LISTEN = 60.0
"""Seconds for which is read at a time."""
LINGER = 0.05
"""Seconds for which nobody reads after a thread that did, unless another one does."""


class Bell:
    """What one waiting thread waits for."""

    __slots__ = ("_asleep", "called")

    def __init__(self) -> None:
        self.called = False
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def ring(self) -> None:
        """Say that the call has come."""
        self.called = True
        self.nudge()

    def answer(self) -> bool:
        """Return whether the call has come, and be ready for the next one."""
        called = self.called
        if called:
            self.called = False
            self._asleep.acquire(blocking=False)
        return called

    def nudge(self) -> None:
        """Wake its thread up: there is nobody else to read."""
        with contextlib.suppress(RuntimeError):  # it is awake
            self._asleep.release()

    def wait(self, seconds: float) -> None:
        """Wait for either."""
        if not self.called:
            self._asleep.acquire(timeout=seconds)


class Listener:
    """Reads one subscription, on one thread at a time."""

    def __init__(self, subscription: Subscription, host: Host, take: Callable[[list[Event | Notice]], None]) -> None:
        self._subscription = subscription
        self._host = host
        self._away = subscription if isinstance(subscription, Interruptible) else None
        """What calls the one that reads away, where the store can."""
        self._clock = host.clock
        self._take = take
        self._reading = new_lock()
        self._turn = host.condition()
        self._reader: object = None
        """Who reads, or is about to: this for the thread of its own, else the bell of one that waits."""
        self._changes = 0
        """How often a thread that waits has begun to read."""
        self._lingers = False
        """Whether the thread of its own looks for itself whether it is to read."""
        self._others: dict[Bell, None] = {}
        self._closed = self._broken = False

    def start(self) -> None:
        """Start the thread of its own. Whatever happens meanwhile, ``close`` ends it."""
        self._host.start(self._run, "lessor-listener")

    def wait(self, bell: Bell, seconds: float) -> None:
        """Wait until the bell rings, but not for longer; and then ``leave``."""
        give_up = self._clock.now() + int(seconds * SECOND)
        while not bell.called and not self._closed:
            left = (give_up - self._clock.now()) / SECOND
            if left <= 0:
                return
            if self._takes_over(bell):
                self._read(left, bell)
            else:
                bell.wait(left)

    def leave(self, bell: Bell) -> None:
        """Wait no more: somebody else is to read, if it was this one."""
        with self._turn:
            self._others.pop(bell, None)
            if self._reader is bell:
                self._reader = None
            if self._reader is None:  # also if it was asked to read next, and leaves instead
                self._pass_on()

    def disturb(self) -> None:
        """Let the one that waits and reads look at its bell, which somebody else has rung."""
        if self._away is not None:
            self._away.interrupt()

    def close(self) -> None:
        """Stop reading."""
        self._closed = True
        self._subscription.close()
        with self._turn:
            self._turn.notify_all()

    def abandon(self) -> None:
        """In a forked child: let the thread go on that waits here, and would wait for threads that don't exist."""
        self._closed = True
        with contextlib.suppress(OSError):
            self.disturb()

    def _takes_over(self, bell: Bell) -> bool:
        """Whether the thread with this bell is the one to read."""
        if self._away is None or self._broken:
            return False
        with self._turn:
            if self._reader is bell:
                return True
            if self._reader is None or self._reader is self:
                if self._reader is self:
                    self._away.interrupt()
                self._reader = bell
                self._changes += 1
                self._others.pop(bell, None)
                return True
            self._others[bell] = None
            return False

    def _pass_on(self) -> None:
        for bell in self._others:
            bell.nudge()
            return
        if not self._lingers:
            self._turn.notify()

    def _linger(self) -> None:
        """Wait until no thread that waits reads, nor has for a while."""
        changes = -1
        while not self._closed and (self._reader is not None or self._changes != changes):
            reader, changes = self._reader, self._changes
            self._lingers = True
            self._turn.wait(LINGER)
            self._lingers = False
            if reader is not None and self._changes == changes:  # it reads for longer, and will say when it leaves
                self._turn.wait_for(lambda: self._reader is None or self._closed)

    def _run(self) -> None:
        while not self._closed and not self._broken:
            with self._turn:
                if self._reader is not None:
                    self._linger()
                self._reader = self
            self._read(LISTEN)
            with self._turn:
                if self._reader is self:
                    self._reader = None

    def _read(self, seconds: float, bell: Bell | None = None) -> None:
        with self._reading:
            if bell is None and self._reader is not self:
                return  # called away before we began: the interruption is spent
            if bell is not None and bell.called:
                return  # by the reader before us, with the last that it read: nobody would wake us
            try:
                news = self._subscription.get(seconds)
            except Exception:  # noqa: BLE001 - whatever it was, the waiters come by themselves
                self._broken = True
                log().exception("lost the store's calls; waiters come at the known times instead")
                return
            if news:
                self._take(news)  # before anybody else reads, and waits for what has come
