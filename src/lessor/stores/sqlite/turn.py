"""Turns within a process, so that only one of its threads at a time contends for SQLite's lock with other processes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lessor.core.clock import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lessor.core.clock import Clock

OVERDUE_NS = SECOND


class Turn:
    """A lock that heals: a thread that was interrupted at the wrong instruction may never give it back.

    It only saves work. What excludes is SQLite's own lock, so two threads that have the turn at once do no harm.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._until_ns = 0

    def take_now(self) -> bool:
        """Take the turn if nobody has it. For what is done in no time."""
        lock = self._lock
        if lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - as threading.Condition asks it
            self._give_up_own(lock)
        return lock.acquire(blocking=False)

    def take(self, seconds: float) -> bool:
        """Wait for the turn, but not for longer; whoever gets it gives it back within that time."""
        lock = self._lock
        self._give_up_own(lock)
        if not lock.acquire(timeout=max(seconds, 0)):
            if self._clock.now() < self._until_ns + OVERDUE_NS:
                return False
            # Its holder's time is long over, and nobody works for longer than that: it was left behind.
            lock = self._lock = threading.RLock()
            lock.acquire()
        self._until_ns = self._clock.now() + int(seconds * SECOND)
        return True

    def give(self) -> None:
        """Give it back."""
        self._until_ns = 0
        try:  # noqa: SIM105 - suppress() costs as much as the lock
            self._lock.release()
        except RuntimeError:
            pass  # it was taken to be lost, and has been replaced

    @property
    def is_own(self) -> bool:
        """Whether this thread has the turn."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]  # noqa: SLF001 - as above

    def halt(self, seconds: float) -> Callable[[], object] | None:
        """Have the turn, also in the midst of one's own, and return what ends that; None: that took too long."""
        lock = self._lock
        return lock.release if lock.acquire(timeout=max(seconds, 0)) else None

    @staticmethod
    def _give_up_own(lock: Any) -> None:
        """Nobody has business in here twice: if we own it, this very thread was interrupted, and left it behind."""
        while lock._is_owned():  # noqa: SLF001 - as above
            lock.release()
