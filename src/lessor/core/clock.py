"""The clock that everything is handed. The real one is ``runtime.clock``; tests and the simulator bring their own."""

from __future__ import annotations

from typing import Protocol

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


class Clock(Protocol):
    """Three clocks with three uses; none is ever compared with another host's."""

    def now(self) -> int:
        """Nanoseconds on the holder's clock, which must never be slow."""
        ...

    def mark(self) -> int:
        """Like ``now()``, for the start of a span: the time from here on is the longest that any of our clocks saw."""
        ...

    def host_ns(self) -> int:
        """Nanoseconds since boot, suspend included, the same for all processes of this host."""
        ...

    def host_epoch(self) -> str:
        """Return what ``host_ns`` counts from: another value after each boot."""
        ...

    def wall_us(self) -> int:
        """Microseconds since 1970: for display, and to lift a token over a lost counter. Never for expiry."""
        ...
