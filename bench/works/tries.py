"""Tries that fail, since somebody else has it: how fast, and what they leave behind at the server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, NamedTuple

from bench.results import Measure
from bench.worker import Worker
from bench.works.base import Figures, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contestant import Contestant
    from bench.places import Place

RESOURCE = "bench/tries"


class Rivals(NamedTuple):
    place: Place
    holder: Worker
    rival: Worker


class Tries(Work[Rivals]):
    name = "tries"
    stores = ("etcd", "zookeeper")
    fresh = True
    measures = (
        Measure("speed", "tries", "a second", "speed", lower_is_better=False, digits=0),
        Measure("keys", "keys or nodes left", "", "keys", digits=0, compared=False),
        Measure("leases", "leases left", "", "leases", digits=0, compared=False),
        Measure("watches", "watches left", "", "watches", digits=0, compared=False),
    )

    def __init__(self, *, quick: bool) -> None:
        super().__init__(quick=quick)
        self.count = 50 if quick else 1000
        self.title = f"{self.count:,} tries that fail, and what is left of them"

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 2

    @contextlib.contextmanager
    def field(self, place: Place, contestant: type[Contestant]) -> Iterator[Rivals]:
        with (
            Worker(contestant, place.url, self.ttl) as holder,
            Worker(contestant, place.url, self.ttl) as rival,
        ):
            yield Rivals(place, holder, rival)

    def round(self, field: Rivals) -> Figures:
        field.holder.ask("take", RESOURCE)
        field.rival.ask("attempts", RESOURCE, 1)  # what it needs once is no trace of a try
        before = field.place.left()
        speed = field.rival.ask("attempts", RESOURCE, self.count)
        traces = field.place.left() - before
        field.holder.ask("give", RESOURCE)
        return {"speed": [speed], **{name: [traces[name]] for name in ("keys", "leases", "watches")}}
