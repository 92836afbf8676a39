"""The holder is killed: how long after the end of its TTL somebody who waits has the resource."""

from __future__ import annotations

import contextlib
from time import perf_counter_ns, sleep
from typing import TYPE_CHECKING, NamedTuple

from bench.results import Measure
from bench.worker import Failed, Worker
from bench.works.base import Figures, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Contestant
    from bench.places import Place

RESOURCE = "bench/takeover"
TRIES = 5


class Watch(NamedTuple):
    place: Place
    contestant: type[Contestant]
    waiter: Worker


class Takeover(Work[Watch]):
    name = "takeover"
    title = "takeover after kill -9 of the holder, beyond its TTL or, without one, beyond the kill"
    ttl = 2.0
    measures = (
        Measure("late", "median", "ms", "late", digits=1, compared=False),
        Measure("latest", "longest", "ms", "late", "max", digits=1, compared=False),
    )

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 3

    @contextlib.contextmanager
    def field(self, place: Place, contestant: type[Contestant]) -> Iterator[Watch]:
        with Worker(contestant, place.url, self.ttl) as waiter:
            yield Watch(place, contestant, waiter)

    def round(self, field: Watch) -> Figures:
        for _ in range(TRIES):
            late = self._once(field)
            if late is not None:
                return {"late": [late]}
        raise Failed("the machine is too busy to kill it before it renews")

    def _once(self, field: Watch) -> float | None:
        """Return the milliseconds; None if the holder may have renewed before it was killed."""
        with Worker(field.contestant, field.place.url, self.ttl) as holder:
            had = holder.ask("take", RESOURCE)
            field.waiter.send("take", RESOURCE)
            sleep(self.ttl / 20)
            holder.kill()
            killed = perf_counter_ns()
        got = field.waiter.receive()
        field.waiter.ask("give", RESOURCE)
        over = had + int(self.ttl * 1e9) if field.contestant.expires else killed
        return (got - over) / 1e6 if killed - had < self.ttl / 4 * 1e9 else None
