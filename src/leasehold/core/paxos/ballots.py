"""The numbers that attempts carry. They become fencing tokens, so they follow the wall clock and never go back.

The wall clock only makes a number fresh, so that the first try mostly succeeds; safety never rests on it.
"""

from __future__ import annotations

from typing import Final

SECOND_US: Final = 1_000_000
DAY_US: Final = 24 * 3600 * SECOND_US
"""An acceptor refuses a number that is further ahead of both its floor and its wall clock: nobody burns the numbers."""


def majority(acceptors: int) -> int:
    """Return how many of them are more than half."""
    return acceptors // 2 + 1


class Ballots:
    """The highest number that this client has used or heard of. All its proposers share it."""

    __slots__ = ("seen",)

    def __init__(self) -> None:
        self.seen = 0

    def saw(self, n: int) -> None:
        """Take note of a number, so that the next one is above it."""
        self.seen = max(self.seen, n)

    def fresh(self, wall_us: int) -> int:
        """Return a number that this client has never used, above all that it has heard of."""
        self.seen = max(self.seen + 1, wall_us)
        return self.seen
