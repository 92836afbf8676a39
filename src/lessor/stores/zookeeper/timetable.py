"""Does small things at their time: one thread a store, which never waits for a server."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from typing import TYPE_CHECKING

from lessor.core.clock import SECOND
from lessor.stores.locks import new_lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.clock import Clock


class Timetable:
    """A thread that starts with the first thing to do."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[int, int, Callable[[], object]]] = []
        self._serial = itertools.count()
        self._condition = threading.Condition(new_lock())
        self._thread: threading.Thread | None = None
        self._closed = False

    def at(self, when_ns: int, deed: Callable[[], object]) -> None:
        """Do it then, or soon after."""
        with self._condition:
            if self._closed:
                return
            first = self._due[0][0] if self._due else None
            heapq.heappush(self._due, (when_ns, next(self._serial), deed))
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="lessor-zookeeper", daemon=True)
                thread.start()  # if there is none to be had, the next one that needs it tries again
                self._thread = thread
            elif first is None or when_ns < first:
                self._condition.notify()

    def close(self) -> None:
        """End the thread; what is still to be done is not."""
        with self._condition:
            self._closed = True
            self._due.clear()
            self._condition.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._due or self._due[0][0] > self._clock.now():
                    if self._closed:
                        return
                    pause = (self._due[0][0] - self._clock.now()) / SECOND if self._due else None
                    self._condition.wait(pause)
                _, _, deed = heapq.heappop(self._due)
            try:
                deed()
            except Exception:
                logging.getLogger("lessor").exception("while tidying up on ZooKeeper")
