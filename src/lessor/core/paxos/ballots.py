"""The numbers that attempts carry. They become fencing tokens, so they follow the wall clock and never go back.

The wall clock only makes a number fresh, so that the first try mostly succeeds; safety never rests on it.
"""

from __future__ import annotations

from typing import Final

SECOND_US: Final = 1_000_000
DAY_US: Final = 24 * 3600 * SECOND_US
"""An acceptor refuses a number that is further ahead of where it thinks the numbers are: nobody burns them."""
TRUST_US: Final = DAY_US // 2
"""How far ahead of its own reckoning a client follows the floor of a single acceptor.

Half of what acceptors allow: where the clocks of both are wrong by less than that, a number that a client was led to is
taken by all others.
"""


def majority(acceptors: int) -> int:
    """Return how many of them are more than half."""
    return acceptors // 2 + 1


class Ballots:
    """What a client knows of numbers. All its proposers share it, so whoever uses it holds the client's lock."""

    __slots__ = ("_floors", "_highest", "_majority", "used")

    def __init__(self, acceptors: int) -> None:
        self._majority = majority(acceptors)
        self._floors: dict[str, int] = {}
        """By acceptor: the highest number that it has said it won't take."""
        self._highest = 0
        self.used = 0
        """The highest number that this client has drawn, or seen granted."""

    def saw(self, n: int) -> None:
        """Take note of a number that was granted, so that the next one is above it."""
        self.used = max(self.used, n)

    def heard(self, who: str, floor: int) -> None:
        """Take note of what one acceptor demands."""
        if floor > self._floors.get(who, 0):
            self._floors[who] = floor
            self._highest = max(self._highest, floor)

    def heeds(self, floor: int, wall_us: int) -> bool:
        """Whether to go above that floor.

        Not where it is far ahead of both the own wall clock and what a majority demands: the acceptor's wall clock was
        days ahead once, and a number above its floor would be refused by all others.
        """
        floors = sorted(self._floors.values(), reverse=True)
        agreed = floors[self._majority - 1] if len(floors) >= self._majority else 0
        return floor <= max(wall_us, agreed) + TRUST_US

    def fresh(self, wall_us: int, above: int = 0) -> int:
        """Return a number that this client has never used, above all that it has heard of and heeds.

        And ``above`` what is demanded now: an acceptor that lost its disk may demand less than what was heard of it.
        """
        return self._draw(max(self.used + 1, above + 1, wall_us), wall_us)

    def next(self, wall_us: int, above: int) -> int:
        """Return one that is no higher than it has to be: the wall clock only says which floors to heed."""
        return self._draw(max(self.used, above) + 1, wall_us)

    def _draw(self, least: int, wall_us: int) -> int:
        if least > self._highest:  # mostly: the wall clock is ahead of all that has been granted
            self.used = least
            return least
        heeded = [floor for floor in self._floors.values() if floor >= least and self.heeds(floor, wall_us)]
        self.used = max(heeded) + 1 if heeded else least
        return self.used
