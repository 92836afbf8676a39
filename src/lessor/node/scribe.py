"""The thread that writes the high-water mark. What comes while it writes goes into one write, after it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lessor.core.paxos.acceptor import Durable
from lessor.node.disk import DiskError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.node.disk import MarkFile


class Scribe:
    """Writes, syncs, and then says so."""

    error: DiskError | None = None
    """Why nothing is written any more."""

    def __init__(self, mark: MarkFile, done: Callable[[Durable], None], failed: Callable[[DiskError], None]) -> None:
        """``done`` and ``failed`` are called on the thread."""
        self._mark = mark
        self._done = done
        self._failed = failed
        self._asked = Durable(0, 0)
        """The most of all that was ever asked for. What is written later is never less, whoever asks for it."""
        self._wanted: Durable | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="lessor-scribe", daemon=True)
        self._thread.start()

    def write(self, durable: Durable) -> None:
        """Have this written soon; never lower than what was asked for before."""
        with self._changed:
            asked = self._asked
            self._asked = Durable(max(asked.high_water, durable.high_water), max(asked.span_ns, durable.span_ns))
            self._wanted = self._asked
            self._changed.notify()

    def close(self) -> None:
        """Write what is wanted, and end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted is not None or self._closed)
                durable, self._wanted = self._wanted, None
            if durable is None:
                return
            try:
                self._mark.write(durable)
            except DiskError as error:
                self.error = error
                self._failed(error)
                return
            self._done(durable)
