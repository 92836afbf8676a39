"""Somebody waits already: from just before the release in one process until the other process has it."""

from __future__ import annotations

import contextlib
import random
from time import perf_counter, sleep
from typing import TYPE_CHECKING, NamedTuple

from bench.results import Measure
from bench.worker import Worker
from bench.works.base import Figures, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Contestant
    from bench.places import Place

RESOURCE = "bench/handover"
SETTLED = 0.02
"""After so long a waiter waits, also on a busy machine."""


class Pair(NamedTuple):
    holder: Worker
    waiter: Worker
    polls: float


class Handover(Work[Pair]):
    name = "handover"
    title = "handover, from the release to the waiting process having it"
    measures = (
        Measure("p50", "half of them within", "ms", "ms", "p50", digits=2),
        Measure("p99", "99 % within", "ms", "ms", "p99", digits=2),
    )

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 3

    @property
    def seconds(self) -> float:
        return 0.1 if self.quick else 3.0

    @contextlib.contextmanager
    def field(self, place: Place, contestant: type[Contestant]) -> Iterator[Pair]:
        with (
            Worker(contestant, place.url, self.ttl) as holder,
            Worker(contestant, place.url, self.ttl) as waiter,
        ):
            yield Pair(holder, waiter, contestant.polls)

    def round(self, field: Pair) -> Figures:
        hand_over(field)  # the first after a pause finds cold caches
        taken: list[float] = []
        end = perf_counter() + self.seconds
        while not taken or perf_counter() < end:
            taken.append(hand_over(field))
        return {"ms": taken}


def hand_over(pair: Pair) -> float:
    """Return the milliseconds that one took."""
    pair.holder.ask("take", RESOURCE)
    pair.waiter.send("take", RESOURCE)
    sleep(SETTLED + random.uniform(0, pair.polls))  # to hit its polling anywhere
    released = pair.holder.ask("give", RESOURCE)
    got = pair.waiter.receive()
    pair.waiter.ask("give", RESOURCE)
    return float(got - released) / 1e6
