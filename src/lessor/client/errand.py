"""What blocks, done for an event loop by a thread."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401 - which asyncio imports when it first needs a thread, and may fail to then
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Errand:
    """One piece of blocking work, for all tasks that want it done. It goes on when one of them is cancelled."""

    __slots__ = ("_under_way", "_work")

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._under_way: asyncio.Task[object] | None = None

    async def run(self) -> None:
        """Wait until it is done, by those who are at it or, if nobody is, by a thread that does it now."""
        task = self._under_way
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = self._under_way = asyncio.ensure_future(asyncio.to_thread(self._work))
            task.add_done_callback(_take_note)
        await asyncio.shield(task)


def _take_note(task: asyncio.Task[object]) -> None:
    """Look at what came of it, for when nobody else is left who would."""
    if not task.cancelled():
        task.exception()
