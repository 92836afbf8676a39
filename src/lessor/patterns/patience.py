"""How much is left of a wait that goes over several steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lessor.core.timing import to_ns
from lessor.errors import ConfigError

if TYPE_CHECKING:
    from lessor.core.clock import Clock
    from lessor.core.timing import Duration


class Patience:
    """Counts down from when it is made. None: for ever."""

    __slots__ = ("_clock", "_until_ns", "none")

    def __init__(self, wait: Duration | None, clock: Clock) -> None:
        self._clock = clock
        wait_ns = None if wait is None else to_ns(wait, "the wait")
        if wait_ns is not None and wait_ns < 0:
            raise ConfigError(f"the wait can't be negative, and it is {wait_ns / 1e9:g} s")
        self.none = wait_ns == 0
        """Whether there was nothing to wait from the start."""
        self._until_ns = None if wait_ns is None else clock.now() + wait_ns

    def left(self) -> float | None:
        """Return the seconds that are left."""
        return None if self._until_ns is None else max(0, self._until_ns - self._clock.now()) / 1e9
