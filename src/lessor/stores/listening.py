"""What one client hears from a server over a connection of its own: the part that servers have in common.

Nothing is kept for a client that isn't connected. It finds its way back by itself, and then says that it may have missed
something.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from lessor.core.clock import SECOND
from lessor.errors import LessorError
from lessor.stores.doorbell import Doorbell

if TYPE_CHECKING:
    from lessor.core.clock import Clock
    from lessor.core.ops import Event, Notice

FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 1.0


class Line(Protocol):
    """A connection, as far as listening is concerned."""

    def fileno(self) -> int:
        """Return its descriptor."""
        ...

    def shut_down(self) -> None:
        """Let whoever listens find it closed."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


W = TypeVar("W", bound=Line)


class Listening(Generic[W]):
    """A subscription. Used by one thread at a time; ``interrupt`` and ``close`` by any."""

    trouble: tuple[type[Exception], ...] = (OSError, LessorError)
    """What means that the connection is lost, or can't be made: the store's calls tell it, too."""

    def __init__(self, clock: Clock, prefix: str | None) -> None:
        self._clock = clock
        self._prefix = prefix
        self._name = os.urandom(8).hex()
        self._wire: W | None = None
        self._news: list[Event | Notice] = []
        self._closed = threading.Event()
        self._doorbell = Doorbell()
        self._rung = False
        self._pause = FIRST_PAUSE

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
                wire.shut_down()  # wakes the listener up, which finds it closed

    # --- what servers have each in their own way ------------------------------------------------------------------

    def _connect(self) -> W:
        """Return a connection over which all is told from now on."""
        raise NotImplementedError

    def _listen(self, wire: W, left: float) -> bool:
        """Take in what is there, or comes within that time. True: something may have been missed."""
        raise NotImplementedError

    # --- inside ---------------------------------------------------------------------------------------------------

    def _begin(self, *trouble: type[Exception]) -> None:
        """Connect; in such trouble, whoever listens will. Until then waiters come at the known times."""
        try:
            self._attach()
        except trouble:
            pass
        except BaseException:
            self._doorbell.close()
            raise

    def _attach(self) -> None:
        wire = self._connect()
        self._wire = wire
        self._doorbell.watch(wire.fileno())

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
                    if self._listen(wire, left):
                        return None
                except self.trouble:
                    self._lose()
            if self._news or self._rung or self._clock.now() >= give_up:
                break
        self._rung = False
        if self._closed.is_set():
            self._lose()
        news, self._news = self._news, []
        return news

    def _found_again(self, left: float) -> bool:
        """Try to connect; where that fails, wait a little."""
        try:
            self._attach()
        except self.trouble:
            self._rung = self._doorbell.wait(min(left, self._pause))
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            return False
        self._pause = FIRST_PAUSE
        if self._closed.is_set():
            self._lose()
        return True

    def _lose(self) -> None:
        wire = self._wire
        if wire is not None:
            self._doorbell.forget(wire.fileno())  # first of all, or an interrupt would leave it there
            self._wire = None
            wire.close()
