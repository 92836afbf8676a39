"""What a client runs on: a clock, threads that can wait for each other, and chance. The simulator brings its own."""

from __future__ import annotations

import os
import random
import threading
import time
from typing import TYPE_CHECKING, Protocol

from lessor.runtime.clock import SYSTEM
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.clock import Clock


class Host(Protocol):
    """Whatever waits here waits by these, and for nothing while it has a lock that others may want."""

    @property
    def clock(self) -> Clock:
        """The clock that everything here goes by."""
        ...

    def start(self, run: Callable[[], None], name: str) -> object:
        """Start a thread that nobody waits for."""
        ...

    def condition(self, lock: threading.RLock | None = None) -> threading.Condition:
        """Return something that threads can wait for."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let this thread do nothing for a while."""
        ...

    def random(self) -> float:
        """Return a number from 0 to 1, to spread load."""
        ...

    def entropy(self, size: int) -> bytes:
        """Return bytes that nobody can guess."""
        ...


class Background(threading.Thread):
    """A daemon thread. `start` doesn't wait for it to run.

    An interrupt in that wait leaves the standard library's condition unlocked, and comes out as a RuntimeError. After a
    fork in that wait, by a signal handler, the child would wait forever.
    """

    def __init__(self, run: Callable[[], None], name: str) -> None:
        super().__init__(target=run, name=name, daemon=True)
        self._started = self._running = _Unawaited()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end; it may not have begun yet."""
        threading.Event.wait(self._running, timeout)
        super().join(timeout)


class _Unawaited(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return self.is_set()


class ThisHost:
    """The real one."""

    clock = SYSTEM

    def start(self, run: Callable[[], None], name: str) -> threading.Thread:
        """Start a daemon thread. Where that fails, nothing is remembered of it, so the next one to need it tries again."""
        thread = Background(run, name)
        thread.start()
        return thread

    def condition(self, lock: threading.RLock | None = None) -> threading.Condition:
        """Return an ordinary condition."""
        return threading.Condition(lock or new_lock())

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)

    def random(self) -> float:
        """Return a random number."""
        return random.random()

    def entropy(self, size: int) -> bytes:
        """Ask the system."""
        return os.urandom(size)


HERE = ThisHost()
