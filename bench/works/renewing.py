"""Thousands of leases are held, and many callers renew them one after the other, as fast as they can."""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING, ClassVar

from bench.results import Measure
from bench.worker import Worker
from bench.works.base import Figures, Work

if TYPE_CHECKING:
    from bench.contestant import Contestant
    from bench.places import Place

CALLERS = 64


class Renewing(Work[Worker]):
    name = "renewing"
    stores = ("cluster",)
    fresh = True
    ttl: ClassVar[float] = 15.0
    measures = (Measure("renewals", "renewals", "a second", "renewals", lower_is_better=False, digits=0),)

    def __init__(self, *, quick: bool) -> None:
        super().__init__(quick=quick)
        self.leases = 200 if quick else 10_000
        self.title = f"{self.leases:,} leases held, and renewed by {CALLERS} callers"

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 2

    @property
    def seconds(self) -> float:
        return 0.1 if self.quick else 3.0

    def field(self, place: Place, contestant: type[Contestant]) -> Worker:
        return Worker(contestant, place.url, self.ttl)

    def round(self, field: Worker) -> Figures:
        field.ask("hold_many", self.leases, patience=300.0)
        renewals = field.ask("renewing", CALLERS, self.seconds)
        field.kill()  # to release thousands is not what is measured
        if not self.quick:
            sleep(self.ttl + 10)  # nor is what servers do about so many that run out
        return {"renewals": [renewals]}
