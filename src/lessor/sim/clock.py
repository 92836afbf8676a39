"""A clock with a rate of its own, which may be made to jump."""

from __future__ import annotations


class SimClock:
    """Shows ``shown + (true - since) * rate``."""

    __slots__ = ("rate", "shown", "since")

    def __init__(self, rate: float, shown: int) -> None:
        self.rate = rate
        self.shown = shown
        self.since = 0

    def at(self, true_ns: int) -> int:
        """Return what it shows at a true time."""
        return self.shown + int((true_ns - self.since) * self.rate)

    def when(self, shown_ns: int) -> int:
        """Return the first true time at which it shows this, if it goes on as it does."""
        true = self.since + int((shown_ns - self.shown) / self.rate)
        while self.at(true) < shown_ns:
            true += 1
        return true

    def change_rate(self, true_ns: int, rate: float) -> None:
        """Go on from what it shows, at another rate."""
        self.shown = self.at(true_ns)
        self.since = true_ns
        self.rate = rate

    def jump(self, true_ns: int, by_ns: int) -> None:
        """Show so much more, or less, from here on."""
        self.shown = self.at(true_ns) + by_ns
        self.since = true_ns
