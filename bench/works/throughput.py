"""Nobody else wants it: acquire + release pairs a second, by one caller or many, each with a resource of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.results import Measure
from bench.worker import Worker
from bench.works.base import Figures, Work

if TYPE_CHECKING:
    from bench.contestant import Contestant
    from bench.places import Place


class Throughput(Work["Throughput.Runner"]):
    measures = (
        Measure("pairs", "acquire + release", "pairs/s", "pairs", lower_is_better=False, digits=0),
        Measure("p50", "half of them within", "ms", "p50", digits=2),
        Measure("p99", "99 % within", "ms", "p99", digits=2),
    )

    class Runner(Worker):
        """A worker that hasn't run yet has caches to fill."""

        warm = False

    def __init__(self, callers: int, *, quick: bool) -> None:
        super().__init__(quick=quick)
        self.callers = callers
        if callers == 16:
            self.stores = ("cluster",)
        self.fresh = callers > 1  # idle connections of hundreds of callers would burden the server
        self.name = "sequential" if callers == 1 else f"callers{callers}"
        self.title = "one caller" if callers == 1 else f"{callers} callers at once, each on a resource of its own"

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 3 if self.fresh else 7

    @property
    def seconds(self) -> float:
        return 0.05 if self.quick else 1.0

    def field(self, place: Place, contestant: type[Contestant]) -> Runner:
        return self.Runner(contestant, place.url, self.ttl)

    def round(self, field: Runner) -> Figures:
        if not field.warm:
            field.ask("pairs", self.callers, self.seconds / 2)
            field.warm = True
        return {series: [value] for series, value in field.ask("pairs", self.callers, self.seconds).items()}
