"""When to renew what: a heap of times, and the arithmetic of the strategies. ``now`` and the randomness are handed in."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

from lessor.core.clock import MINUTE, SECOND
from lessor.core.timing import ATTEMPTS, FRACTION, Renewal, Timing

K = TypeVar("K")

LONGEST_RETRY_NS = MINUTE
"""A store that comes back is asked again within this time, however long the lease still lasts."""
LONGEST_LAST_NS = 2 * SECOND
"""An attempt that starts so long before the deadline is always worth it."""
SLACK = 0.05
"""A renewal due within this part of its interval goes along with one that is due now."""


class Latency:
    """How long renewals take here: smoothed mean and deviation, as TCP does for its timeout."""

    __slots__ = ("deviation_ns", "mean_ns", "samples")

    def __init__(self) -> None:
        self.mean_ns = 0.0
        self.deviation_ns = 0.0
        self.samples = 0

    def add(self, ns: int) -> None:
        """Take one more measurement in."""
        if self.samples == 0:
            self.mean_ns, self.deviation_ns = float(ns), ns / 2
        else:
            self.deviation_ns += (abs(ns - self.mean_ns) - self.deviation_ns) / 4
            self.mean_ns += (ns - self.mean_ns) / 8
        self.samples += 1

    @property
    def high_ns(self) -> float:
        """What an attempt hardly ever exceeds."""
        return self.mean_ns + 4 * self.deviation_ns


def interval(timing: Timing, latency: Latency | None) -> int:
    """Return how long after the last successful renewal the next one starts."""
    if timing.renewal is not Renewal.ADAPTIVE or latency is None or latency.samples < 8:
        return timing.renew_every_ns
    # Room for three attempts, each of four times what an attempt hardly ever exceeds; never sooner than a sixth,
    # which would only add load to a slow store, nor later than LAZY does.
    latest = timing.safe_ns - (ATTEMPTS + 1) * 4 * latency.high_ns
    return int(min(max(latest, timing.safe_ns / 6), timing.safe_ns * FRACTION[Renewal.LAZY]))


def renew_at(timing: Timing, sent_ns: int, safe_ns: int, latency: Latency | None, jitter: float) -> int:
    """Return when the next renewal of a lease is due whose last successful one was sent at ``sent_ns``.

    ``safe_ns`` is the safe time that this one has brought. Less than a whole one, under a parent that lasts no longer,
    is divided as a whole one would be.
    """
    every = interval(timing, latency)
    if safe_ns < timing.safe_ns:
        every = every * safe_ns // timing.safe_ns
    return sent_ns + int(every * (1 - timing.jitter * jitter))


def earliest(timing: Timing) -> int:
    """Return how soon after the last successful renewal the next one may be due."""
    return int(timing.renew_every_ns * (1 - timing.jitter))


def last_useful(timing: Timing, failures: int) -> int:
    """Return how long before the deadline the next attempt starts at the latest: one with less time is of no use.

    It is also the least pause before it. Without a least pause, each attempt would come after a part of what is left, and
    dozens would crowd the last milliseconds. The first few are closer where the round trip is short: they must all fit.
    """
    least = timing.round_trip_ns // 4
    if failures >= ATTEMPTS:
        least = max(least, timing.safe_ns // 32)
    return min(least, LONGEST_LAST_NS)


def retry_at(timing: Timing, deadline_ns: int, now: int, failures: int, jitter: float) -> int | None:
    """Return when to try again after a failure; None: not any more, since no attempt would be of use.

    The pauses grow from the round trip on, and shrink again towards the deadline: a third of what is left at most, so
    that more than one attempt fits while that is possible.
    """
    left = max(0, deadline_ns - now)
    least = last_useful(timing, failures)
    if timing.renewal is Renewal.DHCP:
        t2 = deadline_ns - timing.safe_ns // 8
        wait = (t2 - now) // 2 if t2 - now > timing.round_trip_ns else left // 2
    else:
        wait = min(timing.round_trip_ns << min(failures - 1, 30), LONGEST_RETRY_NS, left // 3)
    again = now + max(int(max(wait, least) * (1 - timing.jitter * jitter)), 1)
    return again if again <= deadline_ns - least else None


def attempt_timeout(round_trip_ns: int, deadline_ns: int, now: int) -> int:
    """Return how long one attempt may take: the round-trip bound, and well below what is left."""
    return max(min(round_trip_ns, (deadline_ns - now) // 3), 1)


class Schedule(Generic[K]):
    """What is due when. A key is in it once; setting it again moves it."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, K]] = []
        self._due: dict[K, tuple[int, int]] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, key: K) -> bool:
        return key in self._due

    def set(self, key: K, due_ns: int) -> None:
        """Make the key due then, whatever it was before."""
        self._serial += 1
        self._due[key] = (due_ns, self._serial)
        heapq.heappush(self._heap, (due_ns, self._serial, key))
        self._tidy()

    def remove(self, key: K) -> None:
        """Forget the key."""
        self._due.pop(key, None)
        self._tidy()

    def _tidy(self) -> None:
        """Don't let moved and removed keys pile up, which stay in the heap until they come up."""
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._due):
            self._heap = [(due, serial, k) for k, (due, serial) in self._due.items()]
            heapq.heapify(self._heap)

    def next_due(self) -> int | None:
        """Return when something is due next."""
        heap = self._heap
        while heap:
            due, serial, key = heap[0]
            if self._due.get(key) == (due, serial):
                return due
            heapq.heappop(heap)
        return None

    def pop_due(self, now: int) -> list[K]:
        """Take out all that is due."""
        keys: list[K] = []
        due = self.next_due()
        while due is not None and due <= now:
            key = heapq.heappop(self._heap)[2]
            del self._due[key]
            keys.append(key)
            due = self.next_due()
        return keys
