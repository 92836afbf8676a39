"""How long the machine held everybody up: a thread that wakes up often, and notes when it was woken up late."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from lessor.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from typing import Self

EVERY: Final = 0.005
LATE_NS: Final = 20_000_000


class Stalls:
    """Times at which this process, and so presumably others, did not get a processor."""

    def __init__(self) -> None:
        self._noted: list[tuple[int, int]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def between(self, start_ns: int, end_ns: int) -> float:
        """Return for how many seconds of this time it was held up."""
        return sum(max(0, min(end, end_ns) - max(start, start_ns)) for start, end in self._noted) / 1e9

    def _watch(self) -> None:
        before = SYSTEM.host_ns()
        while not self._over.wait(EVERY):
            now = SYSTEM.host_ns()
            if now - before > LATE_NS:
                self._noted.append((before, now))
            before = now

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
