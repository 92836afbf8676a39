"""How long a call may take: one limit for all of its steps, be they one request or a dozen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.core.clock import SECOND

if TYPE_CHECKING:
    from lessor.core.clock import Clock

HARDLY: Final = 0.05
"""While less than this part of it has gone, it counts as whole: the kernel needn't be told another limit each time."""
LONGEST: Final = 1e6
"""Seconds, about 11 days: the system's calls that wait take no more than 24."""


class Limit:
    """Counts from when it is made. What can't be interrupted, the look-up of a name, counts but may take longer."""

    __slots__ = ("_clock", "_whole", "began_ns", "seconds")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._whole = True
        self.seconds = min(seconds, LONGEST)
        self.began_ns = clock.now()

    def left(self) -> float:
        """Return the seconds that are left. Raises `TimeoutError` where none are."""
        if self._whole:
            self._whole = False
            return self.seconds  # the first step comes at once; most calls have no other
        gone = (self._clock.now() - self.began_ns) / SECOND
        if gone < self.seconds * HARDLY:
            return self.seconds
        if gone >= self.seconds:
            raise TimeoutError
        return self.seconds - gone

    def share(self, count: int) -> Limit:
        """Return a limit for one of so many steps, which leaves as much for each of the others."""
        return Limit(self._clock, self.left() / count)
