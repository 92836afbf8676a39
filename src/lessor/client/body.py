"""The body of an ``async with``: a task that is cancelled from outside, and has to know afterwards by whom."""

from __future__ import annotations

import asyncio


class Body:
    """The current task, from here on until it leaves."""

    __slots__ = ("_cancelled", "_cancelling", "_outside", "_task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._cancelled = self._outside = False

    def cancel(self) -> None:
        """Cancel it, once: its lease is lost."""
        if not self._cancelled:
            self._cancelled = True
            self._task.cancel()

    def take_back(self) -> None:
        """Take our own cancellation back, as ``asyncio.timeout`` does, and see whether there was another one."""
        pending = self._task.uncancel() if self._cancelled else self._task.cancelling()
        self._outside = pending > self._cancelling

    def was_ours(self) -> bool:
        """Whether a cancellation that comes now, late, can only be our own."""
        return self._cancelled and self._task.cancelling() <= self._cancelling

    def was_cancelled_by_us(self, exc_type: type[BaseException]) -> bool:
        """Whether this is our own cancellation, coming out of the body."""
        return self._cancelled and not self._outside and exc_type is asyncio.CancelledError
