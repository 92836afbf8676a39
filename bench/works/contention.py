"""Many processes want the same resource, for a millisecond each, again and again: who gets it, and who waits."""

from __future__ import annotations

import contextlib
from time import perf_counter_ns
from typing import TYPE_CHECKING

from bench.results import Measure
from bench.worker import Worker
from bench.works.base import Figures, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Contestant
    from bench.places import Place

RESOURCE = "bench/contention"
WORK_MS = 1


class Contention(Work[list[Worker]]):
    name = "contention"
    measures = (
        Measure("turns", "turns", "turns/s", "turns", lower_is_better=False, digits=0),
        Measure(
            "share", "smallest share / largest share", "", "share", lower_is_better=False, digits=2, compared=False
        ),
        Measure("wait", "longest wait", "ms", "wait", "max", digits=0),
    )

    def __init__(self, *, quick: bool) -> None:
        super().__init__(quick=quick)
        self.processes = 3 if quick else 8
        self.title = f"{self.processes} processes, one resource, {WORK_MS} ms of work in each turn"

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 3

    @property
    def seconds(self) -> float:
        return 0.2 if self.quick else 3.0

    @contextlib.contextmanager
    def field(self, place: Place, contestant: type[Contestant]) -> Iterator[list[Worker]]:
        with contextlib.ExitStack() as stack:
            workers = [Worker(contestant, place.url, self.ttl) for _ in range(self.processes)]
            for worker in workers:
                stack.enter_context(worker)
            yield workers

    def round(self, field: list[Worker]) -> Figures:
        for worker in field:  # everybody is connected before the first begins
            worker.ask("take", RESOURCE)
            worker.ask("give", RESOURCE)
        start = perf_counter_ns() + 50_000_000
        for worker in field:
            worker.send("contend", RESOURCE, start, start + int(self.seconds * 1e9), WORK_MS / 1e3)
        answers = [worker.receive() for worker in field]
        turns = [count for count, _ in answers]
        return {
            "turns": [sum(turns) / self.seconds],
            "share": [min(turns) / max(1, *turns)],
            "wait": [max(wait for _, wait in answers) / 1e6],
        }
